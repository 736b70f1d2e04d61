import assert from "node:assert/strict";
import { once } from "node:events";
import * as http from "node:http";
import * as net from "node:net";
import { describe, test } from "node:test";
import { pipeline } from "node:stream/promises";
import { Readable } from "node:stream";
import { CancelledError, PortRefusedError, UnavailableError, type Process } from "../src/index.js";
import { idle, onServer, sharedWorkspace } from "./fixture.js";

const MIB = 1 << 20;
const shared = sharedWorkspace();
const text = (data: string): Uint8Array => new TextEncoder().encode(data);

/** A program inside that listens: what it does with a connection is Python. */
async function listening(handle: string): Promise<{ port: number; process: Process }> {
  const program = [
    "import socket, threading",
    "server = socket.create_server(('127.0.0.1', 0))",
    "print(server.getsockname()[1], flush=True)",
    `def handle(connection):\n    ${handle.replaceAll("\n", "\n    ")}`,
    "while True: threading.Thread(target=handle, args=(server.accept()[0],), daemon=True).start()",
  ].join("\n");
  const process = await shared.ws.exec(["python3", "-c", program], { disconnectPolicy: "kill" });
  const event = await process.read();
  return { port: Number(Buffer.from(event?.data ?? []).toString()), process };
}

const ECHO = "while data := connection.recv(65536): connection.sendall(data)\nconnection.close()";

describe("a tunnel", () => {
  test("carries bytes both ways, and each side's end", onServer, async () => {
    const { port, process } = await listening("data = b''\nwhile part := connection.recv(65536): data += part\nconnection.sendall(data[::-1])\nconnection.close()");
    await using _ = process;
    await using tunnel = await shared.ws.tunnel(port);
    const writer = tunnel.writable.getWriter();
    await writer.write(text("abc"));
    await writer.write(text("d".repeat(MIB)));
    await writer.close();
    const answer = await new Response(tunnel.readable).text();
    assert.equal(answer, `${"d".repeat(MIB)}cba`);
  });

  test("is a stream of Node", onServer, async () => {
    const { port, process } = await listening(ECHO);
    await using _ = process;
    const duplex = (await shared.ws.tunnel(port)).duplex();
    const parts: Buffer[] = [];
    duplex.on("data", (part: Buffer) => parts.push(part));
    await pipeline(Readable.from([Buffer.alloc(MIB, 1), Buffer.from("end")]), duplex);
    await (duplex.closed || once(duplex, "close"));
    assert.equal(Buffer.concat(parts).length, MIB + 3);
    await idle(shared.client, 1); // that of the program
  });

  test("ends with close, an abort and a refusal", onServer, async () => {
    const { port, process } = await listening(ECHO);
    await using _ = process;
    await assert.rejects(shared.ws.tunnel(1), PortRefusedError);
    const closed = await shared.ws.tunnel(port);
    const reader = closed.readable.getReader();
    const reading = reader.read();
    await closed.close();
    await assert.rejects(reading, UnavailableError);
    const stop = new AbortController();
    const aborted = await shared.ws.tunnel(port, { signal: stop.signal });
    const waiting = aborted.readable.getReader().read();
    stop.abort();
    await assert.rejects(waiting, CancelledError);
    await assert.rejects(shared.ws.tunnel(port, { signal: stop.signal }), CancelledError);
  });
});

const HTTP = "connection.recv(65536)\nconnection.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\nConnection: close\\r\\n\\r\\nhello')\nconnection.close()";

describe("HTTP", () => {
  test("by a local port", onServer, async () => {
    const { port, process } = await listening(HTTP);
    await using _ = process;
    await using forward = await shared.ws.forward(port);
    const response = await fetch(`http://127.0.0.1:${forward.localPort}/`);
    assert.equal(await response.text(), "hello");
    await assert.rejects(shared.ws.forward(port, { localPort: forward.localPort }), { code: "EADDRINUSE" });
  });

  test("by an agent", onServer, async () => {
    const { port, process } = await listening(HTTP);
    await using _ = process;
    const agent = shared.ws.httpAgent(port);
    const [response] = (await once(http.get("http://inside.example/", { agent }), "response")) as [http.IncomingMessage];
    assert.equal(Buffer.concat(await response.toArray()).toString(), "hello");
    agent.destroy();
    const refused = http.get("http://inside.example/", { agent: shared.ws.httpAgent(1) });
    const [error] = (await once(refused, "error")) as [Error];
    assert.ok(error instanceof PortRefusedError);
  });
});

test("a forwarded connection to a port that nobody listens on is reset, and closing ends all", onServer, async () => {
  const { port, process } = await listening(ECHO);
  await using _ = process;
  const refused = await shared.ws.forward(1);
  const socket = net.connect(refused.localPort, refused.localHost);
  const [error] = (await once(socket, "error")) as [NodeJS.ErrnoException];
  assert.equal(error.code, "ECONNRESET");
  await refused.close();
  const forward = await shared.ws.forward(port);
  const open = net.connect({ port: forward.localPort, host: forward.localHost });
  open.on("error", () => undefined);
  open.write("x");
  await once(open, "data");
  await forward.close();
  await (open.closed || once(open, "close"));
});
