/** The files of a workspace. */

import { chmod, open, rename, rm } from "node:fs/promises";
import { randomUUID } from "node:crypto";
import { basename, dirname, join } from "node:path";
import type { CallOptions, Connection } from "./connection.js";
import { ContentChangedError, FileNotFoundError, UnavailableError } from "./errors.js";
import { fileInfo, watchEvent, type FileInfo, type WatchEvent } from "./file-info.js";
import { FileService, type FileInfo as FileMessage } from "./gen/workspaced/v1/file_pb.js";
import { generatedStream, joined, readable } from "./generated-stream.js";
import { listen } from "./listen.js";
import { MessageStream } from "./message-stream.js";
import { collected, pages } from "./paging.js";
import { Repair } from "./repair.js";
import { fileSource, onceSource, sourceOf, type Data } from "./source.js";
import { downloadTree, uploadTree, type Tree, type TreeOptions } from "./tree.js";
import { unsigned } from "./unsigned.js";
import { writeFile, type Transferred } from "./upload.js";

/** How a file is read. */
export interface ReadOptions extends CallOptions {
  /** The first byte (0). Beyond the end: nothing is read. */
  offset?: number | undefined;
  /** At most so many bytes; absent: to the end. */
  limit?: number | undefined;
}

/** How a file is written. */
export interface WriteOptions extends CallOptions {
  /** Permission bits; absent: those of the file that there is, else 0644 less the umask. */
  mode?: number | undefined;
  /** Refuse a path that exists: `FileExistsError`. */
  createOnly?: boolean | undefined;
  /** The SHA-256, in hexadecimal, that the present content must have: `ContentChangedError`. */
  ifMatch?: string | undefined;
  /** Make missing parent directories (true). */
  parents?: boolean | undefined;
  /** The SHA-256, in hexadecimal, that the new content must have: `HashMismatchError`. */
  sha256?: string | undefined;
  /** Tell the SHA-256 of what was written (true): of a large file, a fifth of the work. Not false with `sha256`. */
  hash?: boolean | undefined;
  /** Wait for the disk (true). */
  sync?: boolean | undefined;
  onProgress?: Transferred | undefined;
}

/** How a local file is copied into the workspace. */
export type UploadOptions = Pick<WriteOptions, "mode" | "parents" | "hash" | "sync" | "onProgress"> & CallOptions;

/** How a directory is listed. */
export interface ListOptions extends CallOptions {
  /** Also what is below; links are not followed. */
  recursive?: boolean | undefined;
  /** Only paths, relative to the directory, that match; `**` crosses directories. */
  glob?: string | undefined;
  /** The depth of a recursive listing; absent: any. */
  maxDepth?: number | undefined;
}

/**
 * Moves and lists the files of a workspace. Paths are absolute, or relative to the workspace's directory.
 *
 * Methods reject with `FileNotFoundError` only when the sandbox said so; one that cannot be asked is
 * `UnreachableError`. Further: `NotAFileError`, `NotADirectoryError`, `IsADirectoryError`, `DirectoryNotEmptyError`,
 * `FilePermissionDeniedError`, `DiskFullError`.
 */
export class Files {
  readonly #connection: Connection;
  readonly #workspaceId: string;

  /** @internal */
  constructor(connection: Connection, workspaceId: string) {
    this.#connection = connection;
    this.#workspaceId = workspaceId;
  }

  /** A file's bytes, or `limit` of them from `offset`. A broken connection is repaired, as {@link Files.readStream} does. */
  read(path: string, options: ReadOptions = {}): Promise<Uint8Array> {
    return joined(this.chunks(path, options));
  }

  /** A file's content as text. Bytes that are no UTF-8 are replaced by U+FFFD. */
  async readText(path: string, options: CallOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  /**
   * A file's bytes as they come; nothing is asked for before the stream is read. A broken connection is repaired, and
   * reading goes on at the byte; should the file have changed meanwhile, it fails with `ContentChangedError`.
   * Cancelling the stream, or leaving its loop, ends the call. `timeoutMs` bounds the whole.
   */
  readStream(path: string, options: ReadOptions = {}): ReadableStream<Uint8Array> {
    return readable(this.chunks(path, options));
  }

  /** The same as an iterable of chunks of at most 256 KiB. */
  chunks(path: string, options: ReadOptions = {}): MessageStream<Uint8Array> {
    return generatedStream((signal) => this.#read(path, { ...options, signal }, () => undefined), options.signal);
  }

  /**
   * Writes a file as a whole: it replaces the old one at once, when all is there and on disk (`sync`). Resolves with
   * what is known of the file, its `sha256` included.
   *
   * Text, bytes and a `Blob` go on where they were when a connection breaks. A stream or an iterable gives its bytes
   * once, so that it is `UnavailableError` then; when it fails itself, its error is what this rejects with. After any
   * error, and after a cancellation, the old file is as it was and nothing was written.
   */
  async write(path: string, data: Data, options: WriteOptions = {}): Promise<FileInfo> {
    return await writeFile(this.#connection, this.#header(path, options), sourceOf(data), options, options.onProgress);
  }

  /**
   * The same as a stream to write into. `close` resolves once the file is in place; after `abort`, and after an error,
   * the old file is as it was. Bytes written are given once, as those of a stream to {@link Files.write}.
   */
  writeStream(path: string, options: WriteOptions = {}): WritableStream<Uint8Array> {
    const stop = new AbortController();
    const pipe = new TransformStream<Uint8Array, Uint8Array>();
    const writer = pipe.writable.getWriter();
    const source = onceSource(() => pipe.readable.values());
    const onAbort = (): void => stop.abort(options.signal?.reason);
    if (options.signal?.aborted === true) {
      onAbort();
    }
    listen(options.signal, onAbort);
    const header = this.#header(path, options);
    const written = writeFile(this.#connection, header, source, { ...options, signal: stop.signal }, options.onProgress);
    const over = written.finally(() => options.signal?.removeEventListener("abort", onAbort));
    return new WritableStream<Uint8Array>({
      start(controller: WritableStreamDefaultController & { readonly signal?: AbortSignal }) {
        // At once, whereas `abort` waits for a write that waits itself.
        controller.signal?.addEventListener("abort", () => stop.abort(controller.signal?.reason));
        over.catch((error: unknown) => {
          controller.error(error);
          writer.abort(error).catch(() => undefined); // it has ended already
        });
      },
      async write(chunk) {
        await writer.write(chunk).catch(() => over); // whose error says why
      },
      async close() {
        await writer.close().catch(() => over);
        await over;
      },
      async abort(reason) {
        stop.abort(reason);
        await over.catch(() => undefined); // that it was aborted is known
      },
    });
  }

  /** What is known of a file; with `follow: false` of a link itself, with `sha256` also the hash of its content. */
  async stat(
    path: string,
    options: { follow?: boolean | undefined; sha256?: boolean | undefined } & CallOptions = {},
  ): Promise<FileInfo> {
    const request = {
      workspaceId: this.#workspaceId,
      path,
      noFollow: options.follow === false,
      hash: options.sha256 ?? false,
    };
    return fileInfo((await this.#connection.unary(FileService.method.statFile, request, options)).info);
  }

  /** Whether a path exists; a link counts even when what it leads to does not. */
  async exists(path: string, options: CallOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, { ...options, follow: false });
      return true;
    } catch (error) {
      if (error instanceof FileNotFoundError) {
        return false;
      }
      throw error;
    }
  }

  /** The entries of a directory (absent: the workspace's), sorted by path. */
  async list(path = "", options: ListOptions = {}): Promise<FileInfo[]> {
    return await collected(this.#page(path, options), options, (page) => page.files.map(fileInfo));
  }

  /** The same, page by page as they are iterated over: for directories of any size. */
  async *entries(path = "", options: ListOptions = {}): AsyncGenerator<FileInfo, void, undefined> {
    for await (const page of pages(this.#page(path, options), options)) {
      yield* page.files.map(fileInfo);
    }
  }

  /**
   * Removes a file, a link (never its target) or, with `recursive`, a directory; resolves with how many went. With
   * `allowMissing` a missing one is fine, and only then it is repeated when a connection breaks. `ifMatch` is the
   * SHA-256 that the content must have.
   */
  async remove(
    path: string,
    options: {
      recursive?: boolean | undefined;
      allowMissing?: boolean | undefined;
      ifMatch?: string | undefined;
    } & CallOptions = {},
  ): Promise<number> {
    const { recursive = false, allowMissing = false, ifMatch = "" } = options;
    const request = { workspaceId: this.#workspaceId, path, recursive, allowMissing, ifMatch };
    const { signal, timeoutMs } = options;
    const method = FileService.method.removeFile;
    return Number((await this.#connection.unary(method, request, { signal, timeoutMs, repeatable: allowMissing })).removed);
  }

  /**
   * Moves a file or directory to a new path, which must be free (`FileExistsError`) unless `overwrite`. Not repeated
   * when a connection breaks: it may have happened.
   */
  async move(
    source: string,
    destination: string,
    options: { overwrite?: boolean | undefined } & CallOptions = {},
  ): Promise<FileInfo> {
    const request = { workspaceId: this.#workspaceId, source, destination, overwrite: options.overwrite ?? false };
    return fileInfo((await this.#connection.once(FileService.method.moveFile, request, options)).info);
  }

  /**
   * Copies a file, or with `recursive` a directory. A failed or cancelled copy leaves nothing. No deadline unless
   * `timeoutMs` is given, and not repeated.
   */
  async copy(
    source: string,
    destination: string,
    options: { recursive?: boolean | undefined; overwrite?: boolean | undefined } & CallOptions = {},
  ): Promise<FileInfo> {
    const { recursive = false, overwrite = false, signal, timeoutMs = Infinity } = options;
    const request = { workspaceId: this.#workspaceId, source, destination, recursive, overwrite };
    return fileInfo((await this.#connection.once(FileService.method.copyFile, request, { signal, timeoutMs })).info);
  }

  /** Makes a directory. With `existOk` an existing one is fine, and only then it is repeated; else `FileExistsError`. */
  async mkdir(
    path: string,
    options: {
      parents?: boolean | undefined;
      mode?: number | undefined;
      existOk?: boolean | undefined;
    } & CallOptions = {},
  ): Promise<FileInfo> {
    const { parents = false, existOk = false, mode, signal, timeoutMs } = options;
    const request = { workspaceId: this.#workspaceId, path, parents, existOk, ...(mode !== undefined && { mode }) };
    const method = FileService.method.makeDirectory;
    return fileInfo((await this.#connection.unary(method, request, { signal, timeoutMs, repeatable: existOk })).info);
  }

  /**
   * Changes of a file or directory, with `recursive` also of what is below, until the loop is left: READY first, and
   * again after a broken connection, when changes may have been missed.
   */
  watch(path = ".", options: { recursive?: boolean | undefined } & CallOptions = {}): MessageStream<WatchEvent> {
    const recursive = options.recursive ?? false;
    return generatedStream((signal) => this.#watch(path, recursive, { ...options, signal }), options.signal);
  }

  /** Copies a local file into the workspace, with its permission bits unless `mode` is given. Goes on over broken
   * connections; the file must not change meanwhile. Rejects with the error of `node:fs` for the local side. */
  async upload(local: string, path: string, options: UploadOptions = {}): Promise<FileInfo> {
    const source = await fileSource(local);
    const header = this.#header(path, { ...options, mode: options.mode ?? source.stats.mode & 0o7777 });
    return await writeFile(this.#connection, header, source, options, options.onProgress);
  }

  /** Copies a file of the workspace to a local path, with its permission bits; that is replaced at once when all is
   * there, and as it was after an error or a cancellation. */
  async download(path: string, local: string, options: { onProgress?: Transferred | undefined } & CallOptions = {}): Promise<FileInfo> {
    const partial = join(dirname(local), `.${basename(local)}.${randomUUID()}`);
    const file = await open(partial, "wx", 0o600);
    try {
      let found: FileInfo | undefined;
      try {
        let done = 0;
        const read = (signal: AbortSignal) =>
          this.#read(path, { ...options, signal }, (info) => {
            found ??= info;
          });
        for await (const chunk of generatedStream(read, options.signal)) {
          await file.writeFile(chunk);
          done += chunk.length;
          options.onProgress?.(done, Math.max(done, found?.size ?? 0));
        }
      } finally {
        await file.close();
      }
      if (found === undefined) {
        throw new UnavailableError("the server told nothing of the file");
      }
      await chmod(partial, found.mode & 0o777);
      await rename(partial, local);
      return found;
    } catch (error) {
      await rm(partial, { force: true });
      throw error;
    }
  }

  /** Copies what is below a local directory into a directory of the workspace, which is made when it is missing; what
   * is there besides stays. See {@link Tree} for what is left out. Not one step: an error leaves what was copied. */
  uploadTree(local: string, path: string, options: TreeOptions = {}): Promise<Tree> {
    return uploadTree(this, local, path, options);
  }

  /** Copies what is below a directory of the workspace into a local directory, in the same way. */
  downloadTree(path: string, local: string, options: TreeOptions = {}): Promise<Tree> {
    return downloadTree(this, path, local, options);
  }

  #header(path: string, options: WriteOptions) {
    const { mode, createOnly = false, ifMatch = "", parents = true, sha256 = "", hash = true, sync = true } = options;
    return {
      workspaceId: this.#workspaceId, path, createOnly, ifMatch, parents, sha256, noHash: !hash, noSync: !sync,
      ...(mode !== undefined && { mode }),
    };
  }

  #page(path: string, options: ListOptions) {
    const { recursive = false, glob = "", maxDepth = 0 } = options;
    return (pageToken: string, call: CallOptions) =>
      this.#connection.unary(
        FileService.method.listFiles,
        { workspaceId: this.#workspaceId, path, recursive, glob, maxDepth, pageSize: 1000, pageToken },
        call,
      );
  }

  async *#watch(path: string, recursive: boolean, options: CallOptions): AsyncGenerator<WatchEvent, void, undefined> {
    const request = { workspaceId: this.#workspaceId, path, recursive };
    const repair = new Repair(this.#connection, options);
    for (;;) {
      try {
        for await (const response of this.#connection.serverStream(FileService.method.watchFiles, request, repair.options)) {
          repair.progress();
          const event = watchEvent(response);
          if (event !== undefined) {
            yield event;
          }
        }
        return;
      } catch (error) {
        await repair.pause(error);
      }
    }
  }

  async *#read(
    path: string,
    options: ReadOptions,
    onInfo: (info: FileInfo) => void,
  ): AsyncGenerator<Uint8Array, void, undefined> {
    const repair = new Repair(this.#connection, options);
    let offset = options.offset ?? 0;
    let limit = options.limit;
    let first: FileMessage | undefined;
    for (;;) {
      const request = {
        workspaceId: this.#workspaceId, path, offset: unsigned("offset", offset),
        ...(limit !== undefined && { limit: unsigned("limit", limit) }),
      };
      try {
        for await (const { part } of this.#connection.serverStream(FileService.method.readFile, request, repair.options)) {
          if (part.case === "data") {
            repair.progress();
            offset += part.value.length;
            limit = limit === undefined ? undefined : limit - part.value.length;
            yield part.value;
          } else if (part.case === "info") {
            if (first !== undefined && !same(first, part.value)) {
              const message = `${JSON.stringify(path)} changed while the connection was down`;
              throw new ContentChangedError(message, { reason: "CONTENT_CHANGED" });
            }
            first ??= part.value;
            onInfo(fileInfo(first));
          } else if (part.case === "end") {
            return;
          }
        }
        throw new UnavailableError("the stream ended before the file did");
      } catch (error) {
        await repair.pause(error);
      }
    }
  }
}

function same(one: FileMessage, other: FileMessage): boolean {
  const [a, b] = [one.modifyTime, other.modifyTime];
  return one.size === other.size && a?.seconds === b?.seconds && a?.nanos === b?.nanos;
}
