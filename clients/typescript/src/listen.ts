/** Listening to signals that many calls share. */

import { setMaxListeners } from "node:events";

const shared = new WeakSet<AbortSignal>();

/** Listen for an abort. A signal may be given to any number of calls, which is no leak that Node should warn of. */
export function listen(signal: AbortSignal | undefined, listener: () => void): void {
  if (signal !== undefined) {
    if (!shared.has(signal)) {
      shared.add(signal);
      setMaxListeners(0, signal);
    }
    signal.addEventListener("abort", listener, { once: true });
  }
}
