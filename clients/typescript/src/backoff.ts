/** How long to wait before the next attempt. */

import { CancelledError, DeadlineExceededError } from "./errors.js";
import { listen } from "./listen.js";

/** Exponential delays with jitter: between half and all of 50 ms, 100 ms, 200 ms ... at most 2 s. */
export class Backoff {
  #attempt = 0;

  /** Begin with the shortest delay again. */
  reset(): void {
    this.#attempt = 0;
  }

  /** The next delay in milliseconds; `atLeastMs` is what the server asked for. */
  next(atLeastMs = 0): number {
    const delay = Math.min(2000, 50 * 2 ** Math.min(this.#attempt, 16));
    this.#attempt += 1;
    return Math.max(atLeastMs, delay * (0.5 + Math.random() / 2));
  }
}

/** Wait. Rejects with {@link CancelledError} as soon as the signal is aborted, and leaves no timer then. */
export function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) {
      reject(cancelled(signal));
      return;
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    function abort(): void {
      clearTimeout(timer);
      reject(cancelled(signal));
    }
    listen(signal, abort);
  });
}

/** The error of a call whose signal was aborted. */
export function cancelled(signal: AbortSignal | undefined): CancelledError | DeadlineExceededError {
  const cause: unknown = signal?.reason;
  if (cause instanceof CancelledError || cause instanceof DeadlineExceededError) {
    return cause;
  }
  return new CancelledError("the call was cancelled", { cause });
}
