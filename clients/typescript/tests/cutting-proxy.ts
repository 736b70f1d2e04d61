/** A way to the server that can be cut. */

import * as net from "node:net";
import { once } from "node:events";

/** Listens on a free port and passes bytes on, until it is told to cut. */
export class CuttingProxy implements AsyncDisposable {
  /** How many connections were cut. */
  cuts = 0;
  readonly #server: net.Server;
  readonly #sockets = new Set<net.Socket>();
  #budget = Infinity;

  private constructor(server: net.Server) {
    this.#server = server;
  }

  /** A proxy of `host:port`. */
  static async listen(target: string): Promise<CuttingProxy> {
    const [host = "", port = ""] = target.split(":");
    const server = net.createServer();
    const proxy = new CuttingProxy(server);
    server.on("connection", (inner) => proxy.#connect(inner, net.connect(Number(port), host)));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return proxy;
  }

  /** Where it listens. */
  get address(): string {
    const address = this.#server.address();
    if (address === null || typeof address === "string") {
      throw new Error("it does not listen");
    }
    return `127.0.0.1:${address.port}`;
  }

  /** Cut what is open, once so many more bytes have passed in either direction. */
  cutAfter(bytes: number): void {
    this.#budget = bytes;
  }

  /** Cut what is open now. */
  cut(): void {
    this.cuts += 1;
    this.#budget = Infinity;
    for (const socket of this.#sockets) {
      socket.destroy();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, "close");
  }

  #connect(inner: net.Socket, outer: net.Socket): void {
    for (const [from, to] of [[inner, outer], [outer, inner]] as const) {
      this.#sockets.add(from);
      from.setNoDelay();
      from.on("error", () => undefined); // it closes then, which is seen
      from.on("close", () => {
        this.#sockets.delete(from);
        to.destroy();
      });
      from.on("data", (data: Buffer) => {
        to.write(data);
        this.#budget -= data.length;
        if (this.#budget <= 0) {
          this.cut();
        } else if (to.writableLength > 1 << 20) {
          from.pause();
          to.once("drain", () => from.resume());
        }
      });
    }
  }
}
