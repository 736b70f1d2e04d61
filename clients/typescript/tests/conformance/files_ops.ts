/** Files. */

import { MessageStream, type FileInfo, type WatchEvent } from "../../src/index.js";
import { bytesOf, chunksOf, Sink } from "./data.js";
import { abortable, flag, optionalNumber, optionalText, register, scopes, SourceFailed, text, type Args, type Objects } from "./registry.js";

/** A stream, and an item that was asked for by a request that was cancelled. */
class Opened<T> {
  #asked: Promise<IteratorResult<T, undefined>> | undefined;

  constructor(readonly stream: MessageStream<T>) {}

  async next(signal: AbortSignal | undefined): Promise<T | undefined> {
    this.#asked ??= this.stream.next();
    const asked = this.#asked;
    const { value } = await abortable(asked, signal);
    this.#asked = undefined;
    return value;
  }
}

register({
  async file_write(objects, args, call) {
    const failAfter = optionalNumber(args, "fail_after");
    const streamed = flag(args, "as_stream") === true || failAfter !== undefined;
    const data = streamed ? source(args["data"], failAfter) : bytesOf(args["data"]);
    const info = await objects.workspace(args).files.write(text(args, "path"), data, {
      ...call,
      ifMatch: optionalText(args, "if_match"),
      createOnly: flag(args, "create_only"),
      mode: optionalNumber(args, "mode"),
      parents: flag(args, "parents"),
      sha256: optionalText(args, "sha256"),
      hash: flag(args, "hash"),
    });
    return fileOf(info);
  },

  async file_read(objects, args, call) {
    const sink = new Sink();
    for await (const chunk of objects.workspace(args).files.readStream(text(args, "path"), { ...range(args), ...call })) {
      sink.add(chunk);
    }
    return sink.result();
  },

  async file_open(objects, args) {
    await Promise.resolve();
    const stream = objects.workspace(args).files.chunks(text(args, "path"), range(args));
    objects.put(args, "stream", new Opened(stream));
    return {};
  },

  async stream_read(objects, args, { signal }) {
    const opened = opened_(objects, args) as Opened<Uint8Array>;
    const enough = optionalNumber(args, "bytes") ?? Infinity;
    const sink = new Sink();
    let end = false;
    while (sink.size < enough && !end) {
      const chunk = await opened.next(signal);
      end = chunk === undefined;
      sink.add(chunk ?? new Uint8Array());
    }
    return { ...sink.result(), end };
  },

  async stream_close(objects, args) {
    await Promise.resolve();
    opened_(objects, args).stream.close();
    return {};
  },

  async stat(objects, args, call) {
    const options = { ...call, follow: flag(args, "follow"), sha256: flag(args, "sha256") };
    return fileOf(await objects.workspace(args).files.stat(text(args, "path"), options));
  },

  async exists(objects, args, call) {
    return { exists: await objects.workspace(args).files.exists(text(args, "path"), call) };
  },

  async list_files(objects, args, call) {
    const found = await objects.workspace(args).files.list(text(args, "path"), {
      ...call,
      recursive: flag(args, "recursive"),
      glob: optionalText(args, "glob"),
      maxDepth: optionalNumber(args, "max_depth"),
    });
    return {
      paths: found.map(({ path }) => path).sort(byCodePoint),
      types: Object.fromEntries(found.map(({ path, type }) => [path, type])),
    };
  },

  async remove(objects, args, call) {
    const removed = await objects.workspace(args).files.remove(text(args, "path"), {
      ...call,
      recursive: flag(args, "recursive"),
      allowMissing: flag(args, "allow_missing"),
      ifMatch: optionalText(args, "if_match"),
    });
    return { removed };
  },

  async move(objects, args, call) {
    const options = { ...call, overwrite: flag(args, "overwrite") };
    return fileOf(await objects.workspace(args).files.move(text(args, "path"), text(args, "to"), options));
  },

  async copy(objects, args, call) {
    const options = { ...call, overwrite: flag(args, "overwrite"), recursive: flag(args, "recursive") };
    return fileOf(await objects.workspace(args).files.copy(text(args, "path"), text(args, "to"), options));
  },

  async mkdir(objects, args, call) {
    const info = await objects.workspace(args).files.mkdir(text(args, "path"), {
      ...call,
      parents: flag(args, "parents"),
      existOk: flag(args, "exist_ok"),
      mode: optionalNumber(args, "mode"),
    });
    return fileOf(info);
  },

  async watch_files(objects, args) {
    await Promise.resolve();
    const stream = objects.workspace(args).files.watch(text(args, "path"), { recursive: flag(args, "recursive") });
    objects.put(args, "stream", new Opened(stream));
    return {};
  },

  async watch_next(objects, args, { signal }) {
    const event = await (opened_(objects, args) as Opened<WatchEvent>).next(signal);
    return event !== undefined && "path" in event
      ? { kind: event.kind, path: event.path, to: event.to }
      : { kind: event?.kind ?? "END" };
  },

  async upload(objects, args, call) {
    const options = { ...call, mode: optionalNumber(args, "mode") };
    return fileOf(await objects.workspace(args).files.upload(text(args, "local"), text(args, "path"), options));
  },

  async download(objects, args, call) {
    return fileOf(await objects.workspace(args).files.download(text(args, "path"), text(args, "local"), call));
  },
});

scopes.set("file", (objects, args) => Promise.resolve(objects.workspace(args).files.readStream(text(args, "path"))));
scopes.set("watch_files", (objects, args) => Promise.resolve(objects.workspace(args).files.watch(text(args, "path"))));

/** FILE. */
function fileOf({ path, type, size, mode, sha256, linkTarget }: FileInfo): object {
  return { path, type, size, mode, sha256, link_target: linkTarget };
}

function opened_(objects: Objects, args: Args): Opened<unknown> {
  return objects.get<Opened<unknown>>(args, "stream", Opened);
}

function range(args: Args): { offset: number | undefined; limit: number | undefined } {
  return { offset: optionalNumber(args, "offset"), limit: optionalNumber(args, "limit") };
}

/** As Python sorts strings. */
function byCodePoint(one: string, other: string): number {
  return Buffer.compare(Buffer.from(one), Buffer.from(other));
}

async function* source(data: unknown, failAfter = Infinity): AsyncGenerator<Uint8Array, void, undefined> {
  let given = 0;
  for (const chunk of chunksOf(data)) {
    const left = failAfter - given;
    yield await Promise.resolve(chunk.subarray(0, left));
    given += Math.min(chunk.length, left);
    if (given === failAfter) {
      throw new SourceFailed(`after ${failAfter} bytes`);
    }
  }
  if (failAfter !== Infinity) {
    throw new SourceFailed(`after ${given} bytes`);
  }
}
