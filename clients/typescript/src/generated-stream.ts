/** Streams whose items a generator makes, from one call or several. */

import { listen } from "./listen.js";
import { MessageStream } from "./message-stream.js";

/** The stream of what `generate` gives. Its signal is aborted by `outer`, and when the stream is left. */
export function generatedStream<T>(
  generate: (signal: AbortSignal) => AsyncGenerator<T, void, undefined>,
  outer: AbortSignal | undefined,
): MessageStream<T> {
  const controller = new AbortController();
  const onAbort = (): void => controller.abort(outer?.reason);
  if (outer?.aborted === true) {
    onAbort();
  } else {
    listen(outer, onAbort);
  }
  const items = generate(controller.signal);
  return new MessageStream(
    async () => {
      const result = await items.next();
      return result.done === true ? { done: true, value: undefined } : result;
    },
    () => {
      outer?.removeEventListener("abort", onAbort);
      controller.abort();
      items.return().catch(() => undefined); // what it failed with was said, or nobody asked
    },
  );
}

/** The same bytes as a `ReadableStream`, which asks for no more than is read. */
export function readable(chunks: MessageStream<Uint8Array>): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const result = await chunks.next();
        if (result.done === true) {
          controller.close();
        } else {
          controller.enqueue(result.value);
        }
      },
      cancel() {
        chunks.close();
      },
    },
    { highWaterMark: 0 },
  );
}

/** All of the bytes. */
export async function joined(chunks: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of chunks) {
    parts.push(chunk);
    size += chunk.length;
  }
  const whole = new Uint8Array(size);
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}
