/** When a call that can go on where it was is made again. */

import { Backoff } from "./backoff.js";
import type { CallOptions, Connection } from "./connection.js";
import { WorkspacedError } from "./errors.js";

/**
 * Decides after each failure of one logical call, which may be many on the wire. What `resumeTimeoutMs` bounds is the
 * time without progress; the caller's `timeoutMs` bounds all of it.
 */
export class Repair {
  readonly #connection: Connection;
  readonly #signal: AbortSignal | undefined;
  readonly #deadline: number;
  readonly #backoff = new Backoff();
  #lostAt: number | undefined;

  constructor(connection: Connection, options: CallOptions) {
    this.#connection = connection;
    this.#signal = options.signal;
    this.#deadline = performance.now() + (options.timeoutMs ?? Infinity);
  }

  /** What the next attempt takes. */
  get options(): CallOptions {
    const left = this.#deadline - performance.now();
    return { signal: this.#signal, timeoutMs: left === Infinity ? undefined : Math.max(1, left) };
  }

  /** The call works. */
  progress(): void {
    if (this.#lostAt !== undefined) {
      this.#lostAt = undefined;
      this.#backoff.reset();
    }
  }

  /** Waits before the next attempt, or rejects with the error when there is none. */
  async pause(error: unknown): Promise<void> {
    if (!(error instanceof WorkspacedError)) {
      throw error;
    }
    const now = performance.now();
    this.#lostAt ??= now;
    const limit = this.#connection.retryLimit(error, this.#connection.resumeTimeoutMs);
    const delay = this.#backoff.next(error.retryAfterMs);
    if (limit === 0 || now + delay > Math.min(this.#lostAt + limit, this.#deadline)) {
      throw error;
    }
    await this.#connection.pause(delay, this.#signal);
  }
}
