/** What tests on a real server share; `WORKSPACED_TEST_SERVER` says where it is. */

import { after, before } from "node:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, type Client, type Workspace } from "../src/index.js";

/** The server's address; empty when there is none, and then tests that need one fail. */
export const SERVER = process.env["WORKSPACED_TEST_SERVER"] ?? "";

const SETTLE_MS = 5_000;

/** Options of a test that needs the server. */
export const onServer = { timeout: 120_000 };

/** A workspace of the Local backend for all tests of a file, with its client. */
export function sharedWorkspace(): { readonly client: Client; readonly ws: Workspace } {
  let client: Client | undefined;
  let ws: Workspace | undefined;
  before(async () => {
    if (SERVER === "") {
      throw new Error("WORKSPACED_TEST_SERVER is not set: these tests need the address of a running server");
    }
    client = connect({ address: SERVER });
    ws = await client.initialize({ backend: "local" });
  });
  after(async () => {
    await ws?.delete();
    await client?.close();
  });
  return {
    get client() {
      return there(client);
    },
    get ws() {
      return there(ws);
    },
  };
}

/** Waits until no more than so many calls are open: a stream closes a moment after its call. */
export async function idle(client: Client, calls = 0): Promise<void> {
  const end = performance.now() + SETTLE_MS;
  while (client.openCalls > calls) {
    if (performance.now() > end) {
      throw new Error(`${client.openCalls} calls are open`);
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Runs with a directory of this machine that is removed afterwards. */
export async function withDirectory<T>(use: (directory: string) => Promise<T>): Promise<T> {
  const directory = await mkdtemp(join(tmpdir(), "workspaced-"));
  try {
    return await use(directory);
  } finally {
    await rm(directory, { recursive: true });
  }
}

function there<T>(value: T | undefined): T {
  if (value === undefined) {
    throw new Error("used before the tests began");
  }
  return value;
}
