import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { describe, test } from "node:test";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, type Client as ConnectClient } from "@connectrpc/connect";
import { connectTransport } from "../src/connect.js";
import { connect, FileNotFoundError } from "../src/index.js";
import * as v1 from "../src/v1.js";
import { CuttingProxy } from "./cutting-proxy.js";
import { idle, onServer, SERVER, sharedWorkspace } from "./fixture.js";

async function failure(work: Promise<unknown>): Promise<ConnectError> {
  const error = await work.then(() => undefined, (reason: unknown) => reason);
  assert.ok(error instanceof ConnectError, String(error));
  return error;
}

async function all<T>(messages: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const message of messages) {
    found.push(message);
  }
  return found;
}

describe("clients of Connect", onServer, () => {
  const shared = sharedWorkspace();
  const files = (): ConnectClient<typeof v1.FileService> => createClient(v1.FileService, connectTransport(shared.client));
  const execution = (): ConnectClient<typeof v1.ExecutionService> =>
    createClient(v1.ExecutionService, connectTransport(shared.client));
  const header = (path: string) => ({ part: { case: "header", value: { workspaceId: shared.ws.id, path } } }) as const;
  const data = (text: string) => ({ part: { case: "data", value: Buffer.from(text) } }) as const;

  test("every generated file is exported", async () => {
    const directory = new URL("../src/gen/workspaced/v1/", import.meta.url);
    for (const name of (await readdir(directory)).filter((each) => each.endsWith("_pb.js"))) {
      const generated = (await import(new URL(name, directory).href)) as object;
      assert.deepEqual(Object.keys(generated).filter((key) => !(key in v1)), [], name);
    }
  });

  test("a unary call, with its headers and trailers", async () => {
    const seen: Headers[] = [];
    const keep = (headers: Headers) => void seen.push(headers);
    const server = createClient(v1.ServerService, connectTransport(shared.client));
    const { version } = await server.getServerInfo({}, { headers: { "x-request-id": "connect-1" }, onHeader: keep, onTrailer: keep });
    assert.equal(version, (await shared.client.serverInfo()).version);
    assert.equal(seen[0]?.get("content-type"), "application/grpc");
    assert.deepEqual(["grpc-status", "x-request-id"].map((name) => seen[1]?.get(name)), ["0", "connect-1"]);
    await idle(shared.client);
  });

  test("a stream of requests, and one of answers", async () => {
    async function* requests() {
      yield header("streamed");
      yield data("one ");
      yield data("two");
    }
    assert.equal((await files().writeFile(requests())).info?.size, 7n);
    let trailer: Headers | undefined;
    const parts = await all(files().readFile(header("streamed").part.value, { onTrailer: (headers) => (trailer = headers) }));
    assert.deepEqual(parts.map(({ part }) => part.case), ["info", "data", "end"]);
    assert.equal(Buffer.from(parts[1]?.part.value as Uint8Array).toString(), "one two");
    assert.equal(trailer?.get("grpc-status"), "0");
    await idle(shared.client);
  });

  test("both ways at once, with a half-close", async () => {
    let answered!: () => void;
    const output = new Promise<void>((resolve) => (answered = resolve));
    async function* requests(): AsyncGenerator<MessageInitShape<typeof v1.ExecRequestSchema>> {
      const spec = { command: { case: "shellCommand", value: "echo ready; cat" }, stdin: v1.StdinMode.OPEN } as const;
      yield { request: { case: "start", value: { workspaceId: shared.ws.id, spec } } } as const;
      await output;
      yield { request: { case: "stdin", value: { data: Buffer.from("typed") } } } as const;
      yield { request: { case: "closeStdin", value: {} } } as const;
    }
    let text = "";
    let exit: unknown;
    for await (const { event } of execution().exec(requests())) {
      if (event?.event.case === "output") {
        text += Buffer.from(event.event.value.data).toString();
        answered();
      } else if (event?.event.case === "exited") {
        exit = event.event.value.status;
      }
    }
    assert.deepEqual([text, exit], ["ready\ntyped", { case: "exitCode", value: 0 }]);
    await idle(shared.client);
  });

  test("an error has its code, message, details and metadata", async () => {
    const missing = { workspaceId: shared.ws.id, path: "missing" };
    for (const work of [() => files().statFile(missing), () => all(files().readFile(missing))]) {
      const error = await failure(work());
      assert.equal(error.code, Code.NotFound);
      assert.match(error.rawMessage, /missing/);
      const [info] = error.findDetails(v1.ErrorInfoSchema);
      assert.deepEqual([info?.domain, info?.reason], ["workspaced", "FILE_NOT_FOUND"]);
      const [request] = error.findDetails(v1.RequestInfoSchema);
      assert.ok(request !== undefined && request.requestId !== "");
      assert.equal(error.metadata.get("grpc-status"), "5");
      assert.ok(error.cause instanceof FileNotFoundError);
    }
    await idle(shared.client);
  });

  test("a deadline", async () => {
    const processId = "connect-deadline";
    await shared.ws.start("sleep 972", { processId });
    const call = { workspaceId: shared.ws.id, processId };
    assert.equal((await failure(execution().waitProcess(call, { timeoutMs: 50 }))).code, Code.DeadlineExceeded);
    const attached = all(execution().attachProcess(call, { timeoutMs: 50 }));
    assert.equal((await failure(attached)).code, Code.DeadlineExceeded);
    await idle(shared.client);
    await execution().signalProcess({ ...call, signal: "KILL" }, { timeoutMs: 0 }); // no deadline
  });

  test("a write that is aborted leaves the old file", async () => {
    await shared.ws.files.write("kept", "old");
    for (let round = 0; round < 10; round++) {
      const stop = new AbortController();
      async function* requests() {
        yield header("kept");
        yield data("half a file");
        stop.abort(new Error("enough"));
        await new Promise(setImmediate);
        yield data("the rest");
      }
      const error = await failure(files().writeFile(requests(), { signal: stop.signal }));
      assert.equal(error.code, Code.Canceled);
      await idle(shared.client);
      assert.equal(await shared.ws.files.readText("kept"), "old");
    }
  });

  test("requests that fail end the call with their error", async () => {
    async function* requests() {
      yield header("never");
      throw new Error("no more");
    }
    const error = await failure(files().writeFile(requests()));
    assert.deepEqual([error.code, error.rawMessage], [Code.Unknown, "no more"]);
    await idle(shared.client);
    assert.equal(await shared.ws.files.exists("never"), false);
  });

  test("a loop that is left leaves no call", async () => {
    for await (const { event } of files().watchFiles({ workspaceId: shared.ws.id, path: "." })) {
      assert.equal(event.case, "ready");
      assert.equal(shared.client.openCalls, 1);
      break;
    }
    await idle(shared.client);
  });

  test("headers that HTTP/2 does not allow, and a client that is closed", async () => {
    for (const client of [shared.client, connect({ address: SERVER })]) {
      const server = createClient(v1.ServerService, connectTransport(client));
      assert.match((await failure(server.getServerInfo({}, { headers: { connection: "close" } }))).rawMessage, /connection/i);
      assert.equal(client.openCalls, 0);
      if (client !== shared.client) {
        await client.close();
        assert.match((await failure(server.getServerInfo({}))).rawMessage, /closed/);
      }
    }
  });

  test("a unary call that may be repeated outlives its connection", async () => {
    await using proxy = await CuttingProxy.listen(SERVER);
    await using client = connect({ address: proxy.address });
    const server = createClient(v1.ServerService, connectTransport(client));
    await server.getServerInfo({});
    proxy.cut();
    assert.ok((await server.getServerInfo({})).version);
  });
});
