/** Waiting for something to change. */

import { cancelled } from "./backoff.js";

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
      signal?.addEventListener("abort", abort, { once: true });
    });
  }
}

/**
 * A signal that is aborted with the first of another signal and a time limit, whose reason is then a
 * `DeadlineExceededError`. Call `release` when it is no longer needed.
 */
export function limited(
  signal: AbortSignal | undefined,
  timeoutMs: number | undefined,
  expired: () => Error,
): { signal: AbortSignal | undefined; release: () => void } {
  if (timeoutMs === undefined || timeoutMs >= 2 ** 31) {
    return { signal, release: () => undefined };
  }
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(expired()), timeoutMs);
  const abort = (): void => controller.abort(signal?.reason);
  signal?.addEventListener("abort", abort, { once: true });
  if (signal?.aborted === true) {
    abort();
  }
  return {
    signal: controller.signal,
    release: () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    },
  };
}
