/** Trees of files between this machine and a workspace. */

import { chmod, mkdir, opendir, stat } from "node:fs/promises";
import { join, posix, sep } from "node:path";
import type { CallOptions } from "./connection.js";
import type { FileInfo } from "./file-info.js";
import type { Files } from "./files.js";

/** How a tree is copied. */
export interface TreeOptions extends CallOptions {
  /** How many files are copied at the same time (4). */
  concurrency?: number | undefined;
  /** Called after each file, with its path relative to the directory. */
  onFile?: ((path: string) => void) | undefined;
}

/** What was copied. Paths are relative to the directory, with `/`. */
export interface Tree {
  /** How many files. */
  readonly files: number;
  /** How many directories, without the one itself. */
  readonly directories: number;
  /** Their size. */
  readonly bytes: number;
  /**
   * What was left out, sorted: pipes, sockets and devices, names that are not UTF-8, and links. A link of this machine
   * that leads to a file is copied as that file.
   */
  readonly skipped: readonly string[];
}

const CONCURRENCY = 4;

/** A copy under way. */
class Copying {
  readonly files: string[] = [];
  readonly directories: { path: string; mode: number }[] = [];
  readonly skipped: string[] = [];
  readonly #options: TreeOptions;
  readonly #deadline: number;

  constructor(options: TreeOptions) {
    this.#options = options;
    this.#deadline = performance.now() + (options.timeoutMs ?? Infinity);
  }

  call(signal = this.#options.signal): CallOptions {
    const left = this.#deadline - performance.now();
    return { signal, timeoutMs: left === Infinity ? undefined : Math.max(1, left) };
  }

  /** Copies each file, several at a time. The first error cancels the others. */
  async each(copy: (path: string, call: CallOptions) => Promise<FileInfo>): Promise<Tree> {
    const { concurrency = CONCURRENCY, signal, onFile } = this.#options;
    const stop = new AbortController();
    const onAbort = (): void => stop.abort(signal?.reason);
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted === true) {
      onAbort();
    }
    const waiting = this.files[Symbol.iterator]();
    let bytes = 0;
    const worker = async (): Promise<void> => {
      for (const path of waiting) {
        const { size } = await copy(path, this.call(stop.signal));
        bytes += size;
        onFile?.(path);
      }
    };
    const failures: unknown[] = [];
    const failed = (error: unknown): void => {
      failures.push(error);
      stop.abort();
    };
    await Promise.all(Array.from({ length: Math.max(1, concurrency) }, () => worker().catch(failed)));
    signal?.removeEventListener("abort", onAbort);
    if (failures.length > 0) {
      throw failures[0];
    }
    return { files: this.files.length, directories: this.directories.length, bytes, skipped: this.skipped.sort() };
  }
}

/** From this machine to the workspace. */
export async function uploadTree(files: Files, local: string, path: string, options: TreeOptions): Promise<Tree> {
  const copying = new Copying(options);
  await walk(local, "", copying);
  await files.mkdir(path, { ...copying.call(), parents: true, existOk: true });
  for (const directory of copying.directories) {
    const target = posix.join(path, directory.path);
    await files.mkdir(target, { ...copying.call(), existOk: true, mode: directory.mode });
  }
  return await copying.each((file, call) => files.upload(join(local, file), posix.join(path, file), call));
}

/** From the workspace to this machine. */
export async function downloadTree(files: Files, path: string, local: string, options: TreeOptions): Promise<Tree> {
  const copying = new Copying(options);
  const base = (await files.stat(path || ".", copying.call())).path;
  await mkdir(local, { recursive: true });
  for await (const info of files.entries(path, { ...copying.call(), recursive: true })) {
    const name = below(base, info.path);
    if (info.rawPath.length > 0 || (info.type !== "FILE" && info.type !== "DIRECTORY")) {
      copying.skipped.push(name);
    } else if (info.type === "DIRECTORY") {
      copying.directories.push({ path: name, mode: info.mode });
      await mkdir(join(local, name), { recursive: true });
    } else {
      copying.files.push(name);
    }
  }
  const done = await copying.each((file, call) => files.download(posix.join(path, file), join(local, file), call));
  for (const directory of copying.directories.reverse()) {
    await chmod(join(local, directory.path), directory.mode & 0o777);
  }
  return done;
}

async function walk(root: string, relative: string, copying: Copying): Promise<void> {
  const below: string[] = [];
  for await (const entry of await opendir(join(root, relative))) {
    const name = posix.join(relative, entry.name);
    const found = entry.isSymbolicLink() ? await target(join(root, name)) : entry;
    if (entry.isDirectory()) {
      const { mode } = await stat(join(root, name));
      copying.directories.push({ path: name, mode: (mode & 0o7777) | 0o700 });
      below.push(name);
    } else if (found?.isFile() === true) {
      copying.files.push(name);
    } else {
      copying.skipped.push(name);
    }
  }
  for (const name of below.sort()) {
    await walk(root, name, copying);
  }
}

/** What a link leads to; nothing for one that leads nowhere. */
async function target(path: string) {
  try {
    return await stat(path);
  } catch (error) {
    if (["ENOENT", "ELOOP", "ENOTDIR"].includes(String((error as NodeJS.ErrnoException).code))) {
      return undefined;
    }
    throw error;
  }
}

/** A path of the workspace relative to a directory there. Throws for one that would lead out of the local directory. */
function below(base: string, path: string): string {
  const name = posix.relative(base, path);
  if (name === "" || posix.isAbsolute(name) || name.split(/[/\\]/).includes("..") || (sep !== "/" && name.includes(sep))) {
    throw new Error(`the workspace named ${JSON.stringify(path)} as a file below ${JSON.stringify(base)}`);
  }
  return name;
}
