/** The HTTP/2 connection to a server: made when needed, made again when it broke, and watched while calls are open. */

import * as http2 from "node:http2";
import * as net from "node:net";
import * as tls from "node:tls";
import { authority, secureOptions, socketPath, type TlsOptions } from "./target.js";

const MIB = 1 << 20;
const CONNECT_MS = 5_000;
/** A frozen server is noticed after both of these. */
const PING_INTERVAL_MS = 5_000;
const PING_TIMEOUT_MS = 3_000;
const SESSION_MEMORY_MB = 1024;
const STREAM_WINDOW_BYTES = MIB;
const CONNECTION_WINDOW_BYTES = 16 * MIB;

/**
 * One HTTP/2 connection at a time. An idle one does not keep the program running; one with open calls does, and is
 * destroyed when its peer answers no ping.
 */
export class Session {
  /** The origin that requests are for. */
  readonly authority: string;
  readonly #target: net.TcpNetConnectOpts | net.IpcNetConnectOpts;
  readonly #tls: TlsOptions | undefined;
  #current: http2.ClientHttp2Session | undefined;
  #connecting: Promise<void> | undefined;
  readonly #all = new Set<http2.ClientHttp2Session>();
  readonly #watched = new WeakMap<http2.ClientHttp2Session, Watch>();
  #closed = false;

  constructor(address: string, tlsOptions: TlsOptions | undefined) {
    this.#tls = tlsOptions;
    const url = authority(address, tlsOptions !== undefined);
    this.authority = url.origin;
    const path = socketPath(address);
    const port = Number(url.port || (tlsOptions === undefined ? 80 : 443));
    this.#target = path === undefined ? { host: url.hostname.replace(/^\[|\]$/g, ""), port, noDelay: true } : { path };
  }

  /** How many calls are open, on all connections. */
  get openCalls(): number {
    let count = 0;
    for (const session of this.#all) {
      count += this.#watched.get(session)?.streams ?? 0;
    }
    return count;
  }

  /** Open a stream on the connection that there is; `undefined` when there is none. */
  tryRequest(headers: http2.OutgoingHttpHeaders): http2.ClientHttp2Stream | undefined {
    const session = this.#current;
    if (session === undefined || session.closed || session.destroyed) {
      return undefined;
    }
    const stream = session.request(headers);
    this.#watched.get(session)?.add(stream);
    return stream;
  }

  /** Open a stream, on a new connection when there is none. Rejects with what made the connection fail. */
  async request(headers: http2.OutgoingHttpHeaders): Promise<http2.ClientHttp2Stream> {
    for (;;) {
      const stream = this.tryRequest(headers);
      if (stream !== undefined) {
        return stream;
      }
      await this.#connect();
    }
  }

  /** Destroy every connection, and with it what is still open on it. Idempotent. */
  close(): void {
    this.#closed = true;
    for (const session of this.#all) {
      session.destroy();
    }
  }

  #connect(): Promise<void> {
    this.#connecting ??= this.#open().finally(() => {
      this.#connecting = undefined;
    });
    return this.#connecting;
  }

  #open(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#closed) {
        throw new Error("the client is closed");
      }
      const session = http2.connect(this.authority, this.#options());
      this.#all.add(session);
      const timer = setTimeout(() => session.destroy(new Error("the server did not answer in time")), CONNECT_MS);
      let failure: unknown;
      // Stays for the life of the session: an error without a listener would end the program.
      session.on("error", (error) => {
        failure ??= error;
      });
      session.once("close", () => {
        clearTimeout(timer);
        this.#all.delete(session);
        if (this.#current === session) {
          this.#current = undefined;
        }
        reject(failure ?? new Error("the connection was closed"));
      });
      session.once("connect", () => {
        clearTimeout(timer);
        if (session.destroyed) {
          return; // what closed it rejects
        }
        session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
        this.#watched.set(session, new Watch(session));
        this.#current = session;
        resolve();
      });
    });
  }

  #options(): http2.ClientSessionOptions {
    return {
      maxSessionMemory: SESSION_MEMORY_MB, // what is queued on all streams together; each has a bound of its own
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW_BYTES, maxFrameSize: MIB },
      createConnection: () => (this.#tls === undefined ? net.connect(this.#target) : this.#secure(this.#tls)),
    };
  }

  #secure(options: TlsOptions): tls.TLSSocket {
    const target = this.#target;
    const named = "host" in target && net.isIP(target.host ?? "") === 0 ? { servername: target.host } : {};
    const socket = tls.connect({ ...target, ALPNProtocols: ["h2"], ...named, ...secureOptions(options) });
    socket.setNoDelay(true);
    return socket;
  }
}

/** Keeps the program running while streams are open, and finds out whether the peer is still there. */
class Watch {
  streams = 0;
  readonly #session: http2.ClientHttp2Session;
  #timer: NodeJS.Timeout | undefined;

  constructor(session: http2.ClientHttp2Session) {
    this.#session = session;
    session.unref();
    session.once("close", () => clearTimeout(this.#timer));
  }

  add(stream: http2.ClientHttp2Stream): void {
    this.streams += 1;
    if (this.streams === 1) {
      this.#session.ref();
      this.#schedule();
    }
    stream.once("close", () => {
      this.streams -= 1;
      if (this.streams === 0) {
        clearTimeout(this.#timer);
        if (!this.#session.destroyed) {
          this.#session.unref();
        }
      }
    });
  }

  #schedule(): void {
    this.#timer = setTimeout(() => this.#ping(), PING_INTERVAL_MS);
    this.#timer.unref();
  }

  #ping(): void {
    const session = this.#session;
    if (session.destroyed) {
      return; // a ping on a destroyed session throws
    }
    const before = session.socket.bytesRead;
    let answered = false;
    session.ping(() => {
      answered = true; // or the session was destroyed, which needs no more of this
    });
    this.#timer = setTimeout(() => {
      // What arrived while the program was busy is read first.
      setImmediate(() => {
        if (session.destroyed) {
          return;
        }
        if (!answered && session.socket.bytesRead === before) {
          session.destroy(new Error("the server does not answer"));
        } else if (this.streams > 0) {
          this.#schedule();
        }
      });
    }, PING_TIMEOUT_MS);
    this.#timer.unref();
  }
}
