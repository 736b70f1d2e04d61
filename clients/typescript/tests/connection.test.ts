import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import * as http2 from "node:http2";
import * as net from "node:net";
import { once } from "node:events";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { CancelledError, connect, DeadlineExceededError, UnavailableError, type Client } from "../src/index.js";
import { apiRevision } from "../src/api-revision.js";
import { isLoopback } from "../src/target.js";

/** A server that answers nothing but what the test says. */
async function serve(answer: (stream: http2.ServerHttp2Stream, headers: http2.IncomingHttpHeaders) => void): Promise<{ address: string } & AsyncDisposable> {
  const server = http2.createServer();
  const sessions = new Set<http2.ServerHttp2Session>();
  server.on("session", (session) => sessions.add(session));
  server.on("stream", (stream, headers) => {
    stream.on("error", () => undefined);
    stream.resume();
    answer(stream, headers);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    address: `127.0.0.1:${(server.address() as net.AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      sessions.forEach((session) => session.destroy());
      server.close();
      await once(server, "close");
    },
  };
}

const failing = (status: number, more: http2.OutgoingHttpHeaders = {}) => (stream: http2.ServerHttp2Stream) =>
  stream.respond({ ":status": 200, "content-type": "application/grpc", "grpc-status": String(status), ...more }, { endStream: true });

describe("connecting", () => {
  test("which addresses are of this machine", () => {
    for (const address of ["127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1", "unix:///run/x.sock", "unix:x"]) {
      assert.equal(isLoopback(address), true, address);
    }
    for (const address of ["10.0.0.1:1", "example.org:1", "[::2]:1", "127.0.0.1.example.org:1", "localhost.example.org:1"]) {
      assert.equal(isLoopback(address), false, address);
    }
  });

  test("a token to another machine needs TLS, or a word that it may go in the clear", async () => {
    assert.throws(() => connect({ address: "10.0.0.1:1", token: "t" }), TypeError);
    assert.throws(() => connect({ address: "10.0.0.1:1", token: () => "t" }), TypeError);
    assert.throws(() => connect({ address: "127.0.0.1:1", token: "t\nx" }), TypeError);
    assert.throws(() => connect({ address: "127.0.0.1:1", tls: { cert: "c.pem" } }), TypeError);
    assert.throws(() => connect({ address: "http://" }), TypeError);
    for (const options of [{ tls: {} }, { insecure: true }]) {
      await connect({ address: "10.0.0.1:1", token: "t", ...options }).close();
    }
  });

  test("a server that never was there is an error within seconds", async () => {
    const server = net.createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as net.AddressInfo;
    server.close();
    await once(server, "close");
    await using client = connect({ address: `127.0.0.1:${port}` });
    const start = performance.now();
    await assert.rejects(client.serverInfo(), UnavailableError);
    assert.ok(performance.now() - start < 5000);
  });

  test("a token is asked for anew for each call, and what asking throws is what the call rejects with", async () => {
    const seen: unknown[] = [];
    await using server = await serve((stream, headers) => {
      seen.push(headers["authorization"]);
      failing(16)(stream);
    });
    let number = 0;
    const problem = new Error("no token today");
    await using client = connect({
      address: server.address,
      token: async () => {
        await Promise.resolve();
        number += 1;
        if (number > 2) {
          throw problem;
        }
        return `t${number}`;
      },
    });
    await assert.rejects(client.serverInfo());
    await assert.rejects(client.serverInfo());
    assert.deepEqual(seen, ["Bearer t1", "Bearer t2"]);
    await assert.rejects(client.serverInfo(), problem);
  });
});

describe("calls", () => {
  test("one that may be repeated is, while the server is unavailable", async () => {
    let calls = 0;
    await using server = await serve((stream) => {
      calls += 1;
      failing(calls < 4 ? 14 : 7)(stream);
    });
    await using client = connect({ address: server.address });
    await assert.rejects(client.serverInfo(), { name: "PermissionDeniedError" });
    assert.equal(calls, 4);
    calls = 0;
    await assert.rejects(client.workspace("w").delete(), UnavailableError);
    assert.equal(calls, 1, "a deletion may have happened");
  });

  test("an abort and a deadline end the call here and on the server", async () => {
    const ended: number[] = [];
    let arrived: () => void = () => undefined;
    await using server = await serve((stream) => {
      stream.on("close", () => ended.push(stream.rstCode));
      arrived();
    });
    await using client = connect({ address: server.address });
    const stop = new AbortController();
    const there = new Promise<void>((resolve) => {
      arrived = resolve;
    });
    const calling = client.serverInfo({ signal: stop.signal });
    await there;
    const reason = new Error("enough");
    stop.abort(reason);
    await assert.rejects(calling, (error) => error instanceof CancelledError && error.cause === reason);
    await assert.rejects(client.serverInfo({ timeoutMs: 50 }), DeadlineExceededError);
    await assert.rejects(client.serverInfo({ signal: stop.signal }), CancelledError);
    while (ended.length < 2) {
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.deepEqual(ended, [http2.constants.NGHTTP2_CANCEL, http2.constants.NGHTTP2_CANCEL]);
    assert.equal(client.openCalls, 0);
  });

  test("one signal may serve any number of calls", async () => {
    await using server = await serve(failing(5));
    await using client = connect({ address: server.address });
    const warnings: Error[] = [];
    const onWarning = (warning: Error): number => warnings.push(warning);
    process.on("warning", onWarning);
    const { signal } = new AbortController();
    await Promise.allSettled(Array.from({ length: 50 }, () => client.serverInfo({ signal })));
    await new Promise((resolve) => setImmediate(resolve));
    process.off("warning", onWarning);
    assert.deepEqual(warnings, []);
  });

  test("a file of the TLS options that cannot be read is told as it is", async () => {
    await using client = connect({ address: "127.0.0.1:1", tls: { ca: "/no/such/file.pem" } });
    await assert.rejects(client.serverInfo(), { code: "ENOENT" });
  });

  test("closing the client cancels what runs, and refuses what comes", async () => {
    let client: Client | undefined;
    await using server = await serve(() => void client?.close());
    client = connect({ address: server.address });
    await assert.rejects(client.serverInfo(), CancelledError);
    await assert.rejects(client.serverInfo(), TypeError);
    await client.close();
  });

  test("a stream that is reset without a status is unavailable, and so is an answer of a proxy", async () => {
    await using server = await serve((stream, headers) => {
      if (headers[":path"]?.endsWith("GetWorkspace") === true) {
        stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
      } else {
        stream.respond({ ":status": 502, "content-type": "text/html" });
        stream.end("<html>");
      }
    });
    await using client = connect({ address: server.address, retryTimeoutMs: 1 });
    await assert.rejects(client.workspace("w").info(), UnavailableError);
    await assert.rejects(client.serverInfo(), UnavailableError);
  });

  for (const [difference, advice] of [[-1, /upgrade the server/], [-apiRevision, /upgrade the server/], [0, undefined], [1, /upgrade the client/]] as const) {
    test(`a server whose revision differs by ${difference} is warned of at most once`, async () => {
      const warnings: string[] = [];
      await using server = await serve(failing(5, { "x-workspaced-api-revision": String(apiRevision + difference) }));
      await using client = connect({ address: server.address, onWarning: (message) => warnings.push(message) });
      await assert.rejects(client.serverInfo());
      await assert.rejects(client.serverInfo());
      assert.equal(warnings.length, advice === undefined ? 0 : 1);
      assert.match(warnings[0] ?? "", advice ?? /^$/);
    });
  }

  test("a server that is frozen is noticed within 10 s", { timeout: 20_000 }, async () => {
    const sockets = new Set<net.Socket>();
    const server = net.createServer((socket) => sockets.add(socket.on("error", () => undefined)));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const client = connect({ address: `127.0.0.1:${(server.address() as net.AddressInfo).port}` });
    const start = performance.now();
    await assert.rejects(client.workspace("w").delete(), UnavailableError);
    assert.ok(performance.now() - start < 10_000);
    await client.close();
    sockets.forEach((socket) => socket.destroy());
    server.close();
  });
});

test("a program that forgets to close an idle client ends all the same", async () => {
  await using server = await serve(failing(5));
  const program = `
    import { connect } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    const client = connect({ address: ${JSON.stringify(server.address)} });
    await client.serverInfo().catch((error) => console.log(error.code));
  `;
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", program], { timeout: 10_000 });
  assert.equal(stdout.trim(), "NOT_FOUND");
});
