/** Calls that carry the bytes of a source to the server. */

import type { DescMessage, DescMethodStreaming, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { Connection, StreamOptions } from "./connection.js";
import type { Source } from "./source.js";

/** What is sent, and how it is put into requests. */
export interface Sent<I extends DescMessage> {
  /** The first request. */
  first: MessageInitShape<I>;
  /** A request with bytes. */
  chunk: (bytes: Uint8Array) => MessageInitShape<I>;
  source: Source;
  /** Where in the source to begin. */
  offset?: number;
  /** Called with the number of bytes that are on their way, those before the offset included. */
  onSent?: ((done: number) => void) | undefined;
}

/**
 * Sends the first request and the bytes, and resolves with the answer. Rejects with the error of the source, if it has
 * one, and the call is cancelled then: what was sent of it is no whole. However it ends, the source is left.
 */
export function send<I extends DescMessage, O extends DescMessage>(
  connection: Connection,
  method: DescMethodStreaming<I, O>,
  { first, chunk, source, offset = 0, onSent }: Sent<I>,
  options: StreamOptions,
): Promise<MessageShape<O>> {
  async function* requests(signal: AbortSignal): AsyncGenerator<MessageInitShape<I>, void, undefined> {
    yield first;
    let done = offset;
    for await (const bytes of source.chunks(offset, signal)) {
      yield chunk(bytes);
      done += bytes.length;
      onSent?.(done);
    }
  }
  return sendAll(connection, method, requests, options);
}

/** The same for requests of any kind; the signal of their generator is aborted when the call is over. */
export async function sendAll<I extends DescMessage, O extends DescMessage>(
  connection: Connection,
  method: DescMethodStreaming<I, O>,
  requests: (over: AbortSignal) => AsyncGenerator<MessageInitShape<I>, void, undefined>,
  options: StreamOptions,
): Promise<MessageShape<O>> {
  const over = new AbortController();
  const giving = requests(over.signal);
  try {
    return await connection.clientStream(method, giving, options);
  } finally {
    over.abort();
    await giving.return();
  }
}
