/** Lists that come in pages. */

import type { CallOptions } from "./connection.js";

/** The pages of a list; `timeoutMs` bounds all of them, when it is given, and the default of a call each. */
export async function* pages<R extends { readonly nextPageToken: string }>(
  fetch: (pageToken: string, options: CallOptions) => Promise<R>,
  options: CallOptions,
): AsyncGenerator<R, void, undefined> {
  const { signal, timeoutMs } = options;
  const start = performance.now();
  let token = "";
  do {
    const left = timeoutMs === undefined ? undefined : Math.max(1, start + timeoutMs - performance.now());
    const page = await fetch(token, { signal, timeoutMs: left });
    yield page;
    token = page.nextPageToken;
  } while (token !== "");
}

/** All items of a list. */
export async function collected<R extends { readonly nextPageToken: string }, T>(
  fetch: (pageToken: string, options: CallOptions) => Promise<R>,
  options: CallOptions,
  items: (page: R) => readonly T[],
): Promise<T[]> {
  const found: T[] = [];
  for await (const page of pages(fetch, options)) {
    for (const item of items(page)) {
      found.push(item);
    }
  }
  return found;
}
