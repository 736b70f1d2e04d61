import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { chmod, mkdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import {
  CancelledError, connect, ContentChangedError, DeadlineExceededError, FileExistsError, FileNotFoundError,
  HashMismatchError, IsADirectoryError, UnavailableError,
} from "../src/index.js";
import { CuttingProxy } from "./cutting-proxy.js";
import { onServer, SERVER, sharedWorkspace, withDirectory } from "./fixture.js";

const MIB = 1 << 20;

function pattern(size: number): Uint8Array {
  const bytes = new Uint8Array(size);
  for (let index = 0; index < size; index += 1) {
    bytes[index] = (index * 31 + (index >> 13)) & 0xff;
  }
  return bytes;
}

function hash(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

async function* pieces(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let offset = 0; offset < bytes.length; offset += size) {
    yield await Promise.resolve(bytes.subarray(offset, offset + size));
  }
}

describe("files", onServer, () => {
  const shared = sharedWorkspace();
  const text = async (path: string) => await shared.ws.files.readText(path);

  test("every kind of data is written as it is", async () => {
    const { files } = shared.ws;
    const bytes = pattern(700_001);
    const kinds = {
      bytes,
      buffer: bytes.buffer as ArrayBuffer,
      blob: new Blob([bytes as Uint8Array<ArrayBuffer>]),
      stream: new Blob([bytes as Uint8Array<ArrayBuffer>]).stream(),
      generator: pieces(bytes, 1_000),
      large: pieces(bytes, 600_000),
      array: [bytes.subarray(0, 5), bytes.subarray(5)],
    };
    for (const [path, data] of Object.entries(kinds)) {
      const info = await files.write(path, data);
      assert.equal(info.sha256, hash(bytes), path);
      assert.equal(info.size, bytes.length);
    }
    assert.deepEqual(await files.read("generator"), bytes);
    assert.deepEqual(await files.read("bytes", { offset: 3, limit: 300_000 }), bytes.subarray(3, 300_003));
    await assert.rejects(files.read("bytes", { offset: -1 }), TypeError);
    await files.write("text", "größe");
    assert.equal(await text("text"), "größe");
    assert.equal((await files.write("empty", pieces(new Uint8Array(), 1))).size, 0);
    await assert.rejects(files.write("x", 5 as never), TypeError);
  });

  test("conditions of a write", async () => {
    const { files } = shared.ws;
    const { sha256 } = await files.write("if", "one", { mode: 0o600 });
    assert.equal((await files.stat("if")).mode, 0o600);
    await assert.rejects(files.write("if", "two", { createOnly: true }), FileExistsError);
    await assert.rejects(files.write("if", "two", { ifMatch: hash(pattern(1)) }), ContentChangedError);
    await assert.rejects(files.write("if", "two", { sha256: hash(pattern(1)) }), HashMismatchError);
    await assert.rejects(files.write("if", pieces(pattern(20 * MIB), MIB), { createOnly: true }), FileExistsError);
    assert.equal(await text("if"), "one");
    await files.write("if", "two", { ifMatch: sha256, sha256: hash(new TextEncoder().encode("two")) });
    assert.equal(await text("if"), "two");
    await assert.rejects(files.write("missing/if", "two", { parents: false }), FileNotFoundError);
  });

  test("a source that fails, stalls or is cancelled leaves the old file and is left itself", async () => {
    const { files } = shared.ws;
    await files.write("old", "old");
    class Mine extends Error {}
    async function* failing(): AsyncGenerator<Uint8Array> {
      yield* pieces(pattern(3 * MIB), 100_000);
      throw new Mine("source");
    }
    await assert.rejects(files.write("old", failing()), Mine);

    let left = 0;
    const stalling = (): AsyncIterable<Uint8Array> => ({
      [Symbol.asyncIterator]: () => ({
        next: () => new Promise<never>(() => undefined),
        return: () => {
          left += 1;
          return Promise.resolve({ done: true, value: undefined });
        },
      }),
    });
    const stop = new AbortController();
    const writing = files.write("old", stalling(), { signal: stop.signal });
    setImmediate(() => stop.abort(new Mine("why")));
    await assert.rejects(writing, (error) => error instanceof CancelledError && error.cause instanceof Mine);
    await assert.rejects(files.write("old", stalling(), { timeoutMs: 100 }), DeadlineExceededError);
    assert.ok(left >= 1);
    assert.equal(await text("old"), "old");
    const names = (await files.list()).map((info) => info.path);
    assert.deepEqual(names.filter((name) => name.includes("old")), ["old"]);
  });

  test("a cancelled upload leaves the old file, and nothing beside it", async () => {
    const { files } = shared.ws;
    await files.mkdir("dir");
    await files.write("dir/file", "old");
    const stop = new AbortController();
    const writing = files.write("dir/file", pattern(32 * MIB), {
      signal: stop.signal,
      onProgress: (done) => done > 4 * MIB && stop.abort(),
    });
    await assert.rejects(writing, CancelledError);
    // A client's end waits for what it has to tidy up; one of its own here, so that the shared one stays.
    await using other = connect({ address: SERVER });
    const again = new AbortController();
    const more = other.workspace(shared.ws.id).files.write("dir/file", pattern(32 * MIB), {
      signal: again.signal,
      onProgress: (done) => done > 4 * MIB && again.abort(),
    });
    await assert.rejects(more, CancelledError);
    await other.close();
    assert.equal(await text("dir/file"), "old");
    while ((await files.list("dir")).length !== 1) {
      await new Promise((resolve) => setImmediate(resolve)); // until the discarding of the first has arrived
    }
  });

  test("reads and writes go on over broken connections", async () => {
    await using proxy = await CuttingProxy.listen(SERVER);
    await using client = connect({ address: proxy.address });
    const { files } = client.workspace(shared.ws.id);
    const bytes = pattern(24 * MIB);
    proxy.cutAfter(5 * MIB);
    let furthest = 0;
    const written = await files.write("resumed", bytes, {
      onProgress: (done, total) => {
        assert.equal(total, bytes.length);
        furthest = Math.max(furthest, done);
      },
    });
    assert.equal(written.sha256, hash(bytes));
    assert.equal(furthest, bytes.length);
    assert.equal(proxy.cuts, 1);
    proxy.cutAfter(7 * MIB);
    assert.equal(hash(await files.read("resumed")), hash(bytes));
    assert.equal(proxy.cuts, 2);
    proxy.cutAfter(5 * MIB);
    await assert.rejects(files.write("resumed", pieces(bytes, MIB)), UnavailableError);
    assert.equal((await files.stat("resumed", { sha256: true })).sha256, hash(bytes));
  });

  test("a file that changed while the connection was down is not mixed", async () => {
    await using proxy = await CuttingProxy.listen(SERVER);
    await using client = connect({ address: proxy.address });
    await shared.ws.files.write("changing", pattern(24 * MIB));
    const reader = client.workspace(shared.ws.id).files.readStream("changing").getReader();
    await reader.read();
    await shared.ws.files.write("changing", pattern(3 * MIB));
    proxy.cut();
    await assert.rejects(async () => {
      while (!(await reader.read()).done) {
        // to the end
      }
    }, ContentChangedError);
  });

  test("streams: leaving one early ends its call, and a pipe carries everything", async () => {
    const { files } = shared.ws;
    const bytes = pattern(9 * MIB);
    await files.write("streamed", bytes);
    for await (const chunk of files.readStream("streamed")) {
      assert.ok(chunk.length > 0);
      break;
    }
    await files.readStream("streamed").cancel();
    await files.readStream("streamed").pipeTo(files.writeStream("piped"));
    assert.equal((await files.stat("piped", { sha256: true })).sha256, hash(bytes));
    await assert.rejects(files.read("none"), FileNotFoundError);
    await assert.rejects(files.readStream("none").getReader().read(), FileNotFoundError);
    const stop = AbortSignal.abort(new Error("why"));
    await assert.rejects(files.read("streamed", { signal: stop }), CancelledError);
  });

  test("a stream to write into: closed it is the file, aborted it never was", async () => {
    const { files } = shared.ws;
    const encoder = new TextEncoder();
    const writer = files.writeStream("into").getWriter();
    await writer.write(encoder.encode("one "));
    await writer.write(encoder.encode("two"));
    await writer.close();
    assert.equal(await text("into"), "one two");
    const aborted = files.writeStream("into").getWriter();
    await aborted.write(encoder.encode("three"));
    await aborted.abort(new Error("no"));
    const refused = files.writeStream("into", { createOnly: true }).getWriter();
    await assert.rejects(async () => {
      for (;;) {
        await refused.write(new Uint8Array(MIB));
      }
    }, FileExistsError);
    await assert.rejects(refused.closed, FileExistsError);
    assert.equal(await text("into"), "one two");
  });

  test("directories", async () => {
    const { files } = shared.ws;
    await files.mkdir("tree/a/b", { parents: true });
    await assert.rejects(files.mkdir("tree/a/b"), FileExistsError);
    await files.mkdir("tree/a/b", { existOk: true });
    await files.write("tree/a/one.txt", "1");
    await files.write("tree/a/b/two.md", "2");
    const paths = async (options: object) => (await files.list("tree", options)).map(({ path }) => path);
    assert.deepEqual(await paths({}), ["tree/a"]);
    assert.deepEqual(await paths({ recursive: true, glob: "**/*.md" }), ["tree/a/b/two.md"]);
    const entries: string[] = [];
    for await (const { path } of files.entries("tree", { recursive: true })) {
      entries.push(path);
    }
    assert.deepEqual(entries, await paths({ recursive: true }));
    await assert.rejects(files.read("tree/a"), IsADirectoryError);
    await files.copy("tree/a", "tree/c", { recursive: true });
    await files.move("tree/c/one.txt", "tree/moved");
    await assert.rejects(files.move("tree/moved", "tree/a/one.txt"), FileExistsError);
    await files.move("tree/moved", "tree/a/one.txt", { overwrite: true });
    assert.equal(await files.exists("tree/moved"), false);
    assert.equal(await files.remove("tree", { recursive: true }), 8);
    await assert.rejects(files.remove("tree"), FileNotFoundError);
    assert.equal(await files.remove("tree", { allowMissing: true }), 0);
  });

  test("a list longer than a page", async () => {
    const { ws } = shared;
    await ws.tools.call("Bash", { command: "mkdir many && cd many && seq -f %05g 2500 | xargs touch" });
    assert.equal((await ws.files.list("many")).length, 2500);
    let seen = 0;
    for await (const info of ws.files.entries("many")) {
      assert.equal(info.type, "FILE");
      seen += 1;
    }
    assert.equal(seen, 2500);
  });

  test("a watch tells of every change after READY, and comes back after a cut", async () => {
    await using proxy = await CuttingProxy.listen(SERVER);
    await using client = connect({ address: proxy.address });
    const { files } = shared.ws;
    await files.mkdir("watched");
    await using watch = client.workspace(shared.ws.id).files.watch("watched");
    const next = async () => (await watch.next()).value;
    assert.equal((await next())?.kind, "READY");
    await files.write("watched/one", "1");
    const created = await next();
    assert.ok(created?.kind === "CREATED" && created.path === "watched/one");
    proxy.cut();
    for (let event = await next(); event?.kind !== "READY"; event = await next()) {
      assert.ok(event !== undefined);
    }
    await files.move("watched/one", "watched/two");
    const kinds = [(await next())?.kind];
    assert.ok(kinds[0] === "MOVED" || kinds[0] === "DELETED" || kinds[0] === "CREATED");
  });

  test("local files and trees, there and back", async () => {
    const { files } = shared.ws;
    await withDirectory(async (directory) => {
      const bytes = pattern(2 * MIB + 17);
      const local = join(directory, "from");
      await mkdir(join(local, "sub/empty"), { recursive: true });
      await writeFile(join(local, "sub/tool.sh"), bytes);
      await chmod(join(local, "sub/tool.sh"), 0o750);
      await writeFile(join(local, "top"), "top");
      await symlink("top", join(local, "link"));
      await symlink("nowhere", join(local, "broken"));
      const one = await files.upload(join(local, "sub/tool.sh"), "uploaded");
      assert.equal(one.mode, 0o750);
      assert.equal((await files.download("uploaded", join(directory, "back"))).size, bytes.length);
      assert.equal(hash(await readFile(join(directory, "back"))), hash(bytes));
      assert.equal((await stat(join(directory, "back"))).mode & 0o777, 0o750);
      await assert.rejects(files.download("none", join(directory, "back")), FileNotFoundError);
      assert.equal(hash(await readFile(join(directory, "back"))), hash(bytes));

      const copied: string[] = [];
      const up = await files.uploadTree(local, "trees/up", { onFile: (path) => copied.push(path) });
      assert.deepEqual(up, { files: 3, directories: 2, bytes: bytes.length + 6, skipped: ["broken"] });
      assert.deepEqual(copied.sort(), ["link", "sub/tool.sh", "top"]);
      await shared.ws.tools.call("Bash", { command: "cd trees/up && rm link && ln -s /etc/passwd link" });
      const down = await files.downloadTree("trees/up", join(directory, "to"));
      assert.deepEqual(down, { files: 2, directories: 2, bytes: bytes.length + 3, skipped: ["link"] });
      assert.equal(hash(await readFile(join(directory, "to/sub/tool.sh"))), hash(bytes));
      await assert.rejects(stat(join(directory, "to/link")), { code: "ENOENT" });
    });
  });
});
