import { open, stat } from "node:fs/promises";
import type { Stats } from "node:fs";

/** Fewer and larger messages cost more than they spare. */
const CHUNK_BYTES = 256 * 1024;

/**
 * What may be written: a text (sent as UTF-8), bytes, a `Blob` or `File`, or a stream or iterable of bytes, which gives
 * them once.
 */
export type Data =
  | string
  | Uint8Array
  | ArrayBuffer
  | Blob
  | ReadableStream<Uint8Array>
  | AsyncIterable<Uint8Array>
  | Iterable<Uint8Array>;

/** Where the bytes of an upload come from.
 * @internal */
export interface Source {
  /** Whether {@link chunks} may be called again, at another offset. */
  readonly repeatable: boolean;
  /** In bytes, when it is known. */
  readonly size: number | undefined;
  /** The bytes from an offset, in chunks of at most 256 KiB. Ends early, with the reason, when `signal` is aborted. */
  chunks(offset: number, signal: AbortSignal): AsyncGenerator<Uint8Array, void, undefined>;
}

/** @internal */
export function sourceOf(data: Data): Source {
  if (typeof data === "string") {
    return bytesSource(new TextEncoder().encode(data));
  }
  if (data instanceof Uint8Array) {
    return bytesSource(data);
  }
  if (data instanceof ArrayBuffer) {
    return bytesSource(new Uint8Array(data));
  }
  if (data instanceof Blob) {
    return blobSource(data);
  }
  if (data !== null && typeof data === "object") {
    if (data instanceof ReadableStream) {
      return onceSource(() => data.values());
    }
    if (Symbol.asyncIterator in data) {
      return onceSource(() => data[Symbol.asyncIterator]());
    }
    if (Symbol.iterator in data) {
      return onceSource(() => asynchronous(data[Symbol.iterator]()));
    }
  }
  throw new TypeError("data is a string, bytes, a Blob, or a stream or iterable of bytes");
}

/** A local file, which must not change while it is sent.
 * @internal */
export async function fileSource(path: string): Promise<Source & { readonly stats: Stats }> {
  const stats = await stat(path);
  return {
    repeatable: true,
    size: stats.size,
    stats,
    async *chunks(offset) {
      const file = await open(path, "r");
      try {
        for (;;) {
          // A new buffer each time: what was given is still being sent.
          const { bytesRead, buffer } = await file.read(Buffer.allocUnsafeSlow(CHUNK_BYTES), 0, CHUNK_BYTES, offset);
          if (bytesRead === 0) {
            return;
          }
          offset += bytesRead;
          yield buffer.subarray(0, bytesRead);
        }
      } finally {
        await file.close();
      }
    },
  };
}

function bytesSource(bytes: Uint8Array): Source {
  return {
    repeatable: true,
    size: bytes.length,
    async *chunks(offset) {
      for (; offset < bytes.length; offset += CHUNK_BYTES) {
        yield bytes.subarray(offset, offset + CHUNK_BYTES);
      }
    },
  };
}

function blobSource(blob: Blob): Source {
  return {
    repeatable: true,
    size: blob.size,
    async *chunks(offset) {
      for (; offset < blob.size; offset += CHUNK_BYTES) {
        yield new Uint8Array(await blob.slice(offset, offset + CHUNK_BYTES).arrayBuffer());
      }
    },
  };
}

/** @internal */
export function onceSource(iterate: () => AsyncIterator<Uint8Array>): Source {
  let begun = false;
  return {
    repeatable: false,
    size: undefined,
    async *chunks(offset, signal) {
      if (begun || offset !== 0) {
        throw new TypeError("a stream gives its bytes once");
      }
      begun = true;
      const gathered = new Gathered();
      for await (const piece of interruptible(iterate(), signal)) {
        yield* gathered.add(piece);
      }
      yield* gathered.rest();
    },
  };
}

/** What an iterator gives, until the signal is aborted: also while the iterator waits, and then without waiting for it.
 * @internal */
export async function* interruptible<T>(iterator: AsyncIterator<T>, signal: AbortSignal): AsyncGenerator<T, void, undefined> {
  let ended = false;
  let interrupt: () => void = () => undefined;
  const onAbort = (): void => interrupt();
  // One promise a step: racing against one that lasts would keep something of every step.
  const next = (): Promise<IteratorResult<T, unknown>> =>
    new Promise((resolve, reject) => {
      interrupt = () => reject(signal.reason as Error);
      iterator.next().then(
        (step) => {
          ended = step.done === true;
          resolve(step);
        },
        (error: Error) => {
          ended = true;
          reject(error);
        },
      );
    });
  signal.throwIfAborted();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    for (let step = await next(); step.done !== true; step = await next()) {
      yield step.value;
      signal.throwIfAborted();
    }
  } finally {
    signal.removeEventListener("abort", onAbort);
    if (!ended) {
      iterator.return?.().catch(() => undefined); // there is an error already
    }
  }
}

function asynchronous(iterator: Iterator<Uint8Array>): AsyncIterator<Uint8Array> {
  return {
    next: async () => iterator.next(),
    return: async () => iterator.return?.() ?? { done: true, value: undefined },
  };
}

/** Pieces of any size made into chunks: small ones are joined (nobody sees a file before its end), large ones split. */
class Gathered {
  #chunk: Uint8Array | undefined;
  #length = 0;

  *add(piece: Uint8Array): Generator<Uint8Array, void, undefined> {
    if (!(piece instanceof Uint8Array)) {
      throw new TypeError(`a stream of bytes gave ${typeof piece}`);
    }
    for (let taken = 0; taken < piece.length; ) {
      // Copied, since the piece may be used again once the next is asked for.
      this.#chunk ??= new Uint8Array(CHUNK_BYTES);
      const part = piece.subarray(taken, taken + CHUNK_BYTES - this.#length);
      this.#chunk.set(part, this.#length);
      this.#length += part.length;
      taken += part.length;
      if (this.#length === CHUNK_BYTES) {
        yield* this.rest();
      }
    }
  }

  *rest(): Generator<Uint8Array, void, undefined> {
    const chunk = this.#chunk?.subarray(0, this.#length);
    this.#chunk = undefined;
    this.#length = 0;
    if (chunk !== undefined) {
      yield chunk;
    }
  }
}
