/** A stream of messages that owns the call behind it. */

/**
 * Messages from the server. Leaving a `for await` early, {@link MessageStream.close} and `await using` end the call on
 * the server at once; a second loop goes on where the first one left only if the first one has not ended.
 */
export class MessageStream<T> implements AsyncIterableIterator<T>, AsyncDisposable {
  readonly #next: () => Promise<IteratorResult<T, undefined>>;
  readonly #end: () => void;
  #ended = false;

  /** @internal */
  constructor(next: () => Promise<IteratorResult<T, undefined>>, end: () => void) {
    this.#next = next;
    this.#end = end;
  }

  /** The next message. Rejects with a `WorkspacedError`, after which the stream has ended. */
  async next(): Promise<IteratorResult<T, undefined>> {
    if (this.#ended) {
      return { done: true, value: undefined };
    }
    try {
      const result = await this.#next();
      if (result.done === true) {
        this.close();
      }
      return result;
    } catch (error) {
      if (this.#ended) {
        return { done: true, value: undefined }; // closed while it waited
      }
      this.close();
      throw error;
    }
  }

  /** End the call. Idempotent. */
  close(): void {
    if (!this.#ended) {
      this.#ended = true;
      this.#end();
    }
  }

  /** End the call: what leaving a loop does. */
  return(): Promise<IteratorResult<T, undefined>> {
    this.close();
    return Promise.resolve({ done: true, value: undefined });
  }

  /** The stream itself, which can be iterated once. */
  [Symbol.asyncIterator](): this {
    return this;
  }

  /** End the call. */
  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }
}
