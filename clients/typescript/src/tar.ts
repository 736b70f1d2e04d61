import { lstat, open, readdir, readlink } from "node:fs/promises";
import type { Stats } from "node:fs";
import { join } from "node:path";

const BLOCK_BYTES = 512;
const READ_BYTES = 256 * 1024;
const FILE = "0";
const LINK = "2";
const DIRECTORY = "5";
const EXTENDED = "x";

/**
 * What is below a directory as a POSIX (pax) tar archive, by name, without owners; links stay links.
 *
 * Throws for sockets, pipes and devices, and when a file becomes shorter while it is read.
 * @internal
 */
export async function* packed(directory: string, prefix = ""): AsyncGenerator<Uint8Array, void, undefined> {
  for (const name of (await readdir(directory)).sort()) {
    const path = join(directory, name);
    const member = prefix + name;
    const stats = await lstat(path);
    if (stats.isDirectory()) {
      yield* header(`${member}/`, DIRECTORY, stats);
      yield* packed(path, `${member}/`);
    } else if (stats.isSymbolicLink()) {
      yield* header(member, LINK, stats, await readlink(path));
    } else if (stats.isFile()) {
      yield* header(member, FILE, stats);
      yield* content(path, stats.size);
    } else {
      throw new TypeError(`${path} is no file, directory or link`);
    }
  }
  if (prefix === "") {
    yield new Uint8Array(2 * BLOCK_BYTES);
  }
}

async function* content(path: string, size: number): AsyncGenerator<Uint8Array, void, undefined> {
  const file = await open(path, "r");
  try {
    for (let offset = 0; offset < size; ) {
      const length = Math.min(READ_BYTES, size - offset);
      const { bytesRead, buffer } = await file.read(Buffer.allocUnsafeSlow(length), 0, length, offset);
      if (bytesRead === 0) {
        throw new Error(`${path} became shorter while it was read`);
      }
      offset += bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
  yield* padding(size);
}

function* header(name: string, type: string, stats: Stats, link = ""): Generator<Uint8Array, void, undefined> {
  const records = [extension("path", name), extension("linkpath", link)].join("");
  if (records !== "") {
    const data = Buffer.from(records);
    yield block("pax", EXTENDED, data.length, 0o644, 0, "");
    yield data;
    yield* padding(data.length);
  }
  const size = type === FILE ? stats.size : 0;
  yield block(name, type, size, stats.mode & 0o7777, Math.max(0, Math.floor(stats.mtimeMs / 1000)), link);
}

/** A record for what does not fit into a header: `<its own length> <key>=<value>\n`. */
function extension(key: string, value: string): string {
  const bytes = Buffer.byteLength(value);
  if (bytes <= 100 && bytes === value.length) {
    return "";
  }
  const rest = bytes + key.length + 3;
  let length = rest + String(rest).length;
  length = rest + String(length).length; // its own digits may be one more
  return `${length} ${key}=${value}\n`;
}

function block(name: string, type: string, size: number, mode: number, time: number, link: string): Uint8Array {
  const made = Buffer.alloc(BLOCK_BYTES);
  made.write(name, 0, 100);
  for (const [offset, digits, value] of [[100, 7, mode], [108, 7, 0], [116, 7, 0], [124, 11, size], [136, 11, time]] as const) {
    made.write(value.toString(8).padStart(digits, "0"), offset);
  }
  made.write(" ".repeat(8), 148);
  made.write(type, 156);
  made.write(link, 157, 100);
  made.write("ustar\x0000", 257);
  made.write(`${made.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, "0")}\0 `, 148);
  return made;
}

function* padding(size: number): Generator<Uint8Array, void, undefined> {
  const over = size % BLOCK_BYTES;
  if (over !== 0) {
    yield new Uint8Array(BLOCK_BYTES - over);
  }
}
