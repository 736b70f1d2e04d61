/** What tests on a real server share; `WORKSPACED_TEST_SERVER` says where it is. */

import { after, before } from "node:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, type Client, type Workspace } from "../src/index.js";

/** The server's address; empty when there is none, and then tests of this kind are skipped. */
export const SERVER = process.env["WORKSPACED_TEST_SERVER"] ?? "";

/** Options of a test that needs the server. */
export const onServer = { skip: SERVER === "" ? "WORKSPACED_TEST_SERVER is not set" : false, timeout: 120_000 };

/** A workspace of the Local backend for all tests of a file, with its client. */
export function sharedWorkspace(): { readonly client: Client; readonly ws: Workspace } {
  let client: Client | undefined;
  let ws: Workspace | undefined;
  before(async () => {
    if (SERVER !== "") {
      client = connect({ address: SERVER });
      ws = await client.initialize({ backend: "local" });
    }
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
