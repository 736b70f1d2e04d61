/** Waiting for something to change. */

import { cancelled } from "./backoff.js";
import type { CallOptions } from "./connection.js";
import { DeadlineExceededError } from "./errors.js";
import { listen } from "./listen.js";

/** Wakes everybody who waits. A change before the wait is not seen: look first, then wait. */
export class Notifier {
  #waiting = new Set<() => void>();

  /** Wake all. */
  notify(): void {
    const waiting = this.#waiting;
    if (waiting.size > 0) {
      this.#waiting = new Set();
      for (const wake of waiting) {
        wake();
      }
    }
  }

  /** Wait for the next change. Rejects with `CancelledError` when the signal is aborted. */
  wait(signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted === true) {
        reject(cancelled(signal));
        return;
      }
      const wake = (): void => {
        signal?.removeEventListener("abort", abort);
        resolve();
      };
      const abort = (): void => {
        this.#waiting.delete(wake);
        reject(cancelled(signal));
      };
      this.#waiting.add(wake);
      listen(signal, abort);
    });
  }
}

/** Do something within a time limit: `work` is given a signal that is aborted with the caller's, and when time is up. */
export async function bounded<T>(
  { signal, timeoutMs }: CallOptions,
  work: (signal: AbortSignal | undefined) => Promise<T>,
): Promise<T> {
  if (timeoutMs === undefined || timeoutMs >= 2 ** 31) {
    return work(signal);
  }
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(new DeadlineExceededError(`not done within ${timeoutMs} ms`)), timeoutMs);
  const abort = (): void => stop.abort(signal?.reason);
  listen(signal, abort);
  if (signal?.aborted === true) {
    abort();
  }
  try {
    return await work(stop.signal);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}
