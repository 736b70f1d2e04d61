/** Local ports and HTTP agents that lead into a workspace. */

import * as http from "node:http";
import * as net from "node:net";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Tunnel } from "./tunnel.js";

type Open = (signal: AbortSignal) => Promise<Tunnel>;

/** A local TCP port that leads to a port inside a workspace, made by `Workspace.forward`. */
export class Forward implements AsyncDisposable {
  /** The local port that listens. */
  readonly localPort: number;
  /** The local address that listens. */
  readonly localHost: string;
  readonly #server: net.Server;
  readonly #stop: AbortController;
  readonly #running: Set<Promise<void>>;

  private constructor(server: net.Server, stop: AbortController, running: Set<Promise<void>>) {
    const { port, address } = server.address() as net.AddressInfo;
    this.localPort = port;
    this.localHost = address;
    this.#server = server;
    this.#stop = stop;
    this.#running = running;
  }

  /** @internal Listen. */
  static async listen(open: Open, localPort: number, localHost: string): Promise<Forward> {
    const stop = new AbortController();
    const running = new Set<Promise<void>>();
    const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      const carrying = carry(socket, open, stop.signal).finally(() => running.delete(carrying));
      running.add(carrying);
    });
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(localPort, localHost, () => {
        server.off("error", reject);
        resolve();
      });
    });
    return new Forward(server, stop, running);
  }

  /** Stop listening and close every connection. Idempotent. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#stop.abort();
    await Promise.all(this.#running);
    await closed;
  }

  /** {@link Forward.close}. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** Carry one connection until both directions have ended. Never rejects: the client of the port sees how it ended. */
async function carry(socket: net.Socket, open: Open, signal: AbortSignal): Promise<void> {
  socket.on("error", () => undefined); // the pipelines below end with it
  let inside: Duplex | undefined;
  try {
    inside = (await open(signal)).duplex();
    await Promise.all([pipeline(socket, inside, { signal }), pipeline(inside, socket, { signal })]);
  } catch {
    socket.resetAndDestroy(); // a reset is how TCP says that the other end failed
  } finally {
    inside?.destroy();
    socket.destroy();
  }
}

/**
 * An agent whose requests go to a port inside a workspace, whatever their host, made by `Workspace.httpAgent`: give it
 * to `http.request`. `destroy` closes its connections.
 */
export class TunnelAgent extends http.Agent {
  readonly #open: () => Promise<Tunnel>;

  /** @internal */
  constructor(open: () => Promise<Tunnel>, options: http.AgentOptions) {
    super(options);
    this.#open = open;
  }

  /** @internal */
  override createConnection(_options: http.ClientRequestArgs, callback?: (error: Error | null, stream: Duplex) => void): undefined {
    this.#open().then(
      (tunnel) => callback?.(null, tunnel.duplex()),
      (error: unknown) => (callback as ((error: Error) => void) | undefined)?.(error as Error),
    );
  }
}
