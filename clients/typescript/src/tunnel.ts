/** Byte streams to ports inside a workspace. */

import { Duplex } from "node:stream";
import type { CallOptions, Connection } from "./connection.js";
import { DeadlineExceededError, InternalError, UnavailableError } from "./errors.js";
import { PortService, type TunnelRequestSchema, type TunnelResponseSchema } from "./gen/workspaced/v1/port_pb.js";
import type { GrpcCall } from "./grpc-call.js";
import { cancelled } from "./backoff.js";

const CHUNK_BYTES = 256 << 10;

type Call = GrpcCall<typeof TunnelRequestSchema, typeof TunnelResponseSchema>;

/** Where a tunnel leads. */
export interface TunnelTarget {
  workspaceId: string;
  port: number;
  host: string;
}

/**
 * A TCP connection to a port inside a workspace, made by `Workspace.tunnel`.
 *
 * Use {@link Tunnel.readable} and {@link Tunnel.writable}, or {@link Tunnel.duplex}, not both. Closing the writable side
 * tells the other end, and reading goes on. A tunnel is not resumed: a broken connection is `UnavailableError`, as with
 * any socket. `await using` and {@link Tunnel.close} close both directions at once.
 */
export class Tunnel implements AsyncDisposable {
  /** What the port sends; ends when it has closed. Cancelling closes the tunnel. */
  readonly readable: ReadableStream<Uint8Array>;
  /** What goes to the port; a write waits while the port does not read. Aborting closes the tunnel. */
  readonly writable: WritableStream<Uint8Array>;
  readonly #call: Call;
  #ended = false;

  private constructor(call: Call) {
    this.#call = call;
    this.readable = new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          const data = await this.#receive();
          if (data === undefined) {
            controller.close();
          } else {
            controller.enqueue(data);
          }
        },
        cancel: () => call.cancel(undefined),
      },
      { highWaterMark: 0 },
    );
    this.writable = new WritableStream<Uint8Array>({
      write: (chunk) => this.#send(chunk),
      close: () => call.end(),
      abort: () => call.cancel(undefined),
    });
  }

  /** @internal Connect. */
  static async open(connection: Connection, target: TunnelTarget, { signal, timeoutMs }: CallOptions): Promise<Tunnel> {
    // The signal is for all of the tunnel's life, the time for connecting alone.
    const call = connection.call(PortService.method.tunnel, { signal });
    const limit = timeoutMs ?? connection.timeoutMs;
    const timer = setTimeout(() => call.cancel(new DeadlineExceededError(`not connected within ${limit} ms`)), Math.min(limit, 2 ** 31 - 1));
    try {
      await call.send({ part: { case: "open", value: target } });
      const { done, value } = await call.next();
      if (done === true || value.part.case !== "opened") {
        throw signal?.aborted === true ? cancelled(signal) : new InternalError("the tunnel did not begin with `opened`", { reason: "STREAM_DISORDERED" });
      }
      return new Tunnel(call);
    } catch (error) {
      call.cancel(error);
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** The tunnel as a Node stream, which is half-open as a socket can be. Destroying it closes the tunnel. */
  duplex(): Duplex {
    return new TunnelSocket({
      receive: () => this.#receive(),
      send: (data) => this.#send(data),
      end: () => this.#call.end(),
      close: () => this.#call.cancel(undefined),
    });
  }

  /** Close both directions at once. Idempotent. */
  close(): Promise<void> {
    this.#call.cancel(new UnavailableError("the tunnel is closed"));
    return Promise.resolve();
  }

  /** {@link Tunnel.close}. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** The next bytes; `undefined` when the other side has closed. */
  async #receive(): Promise<Uint8Array | undefined> {
    while (!this.#ended) {
      const { done, value } = await this.#call.next();
      if (done === true || value.part.case === "halfClosed") {
        this.#ended = true;
      } else if (value.part.case === "data" && value.part.value.length > 0) {
        return value.part.value;
      }
    }
    return undefined;
  }

  async #send(data: Uint8Array): Promise<void> {
    for (let start = 0; start < data.length; start += CHUNK_BYTES) {
      const part = { case: "data" as const, value: data.subarray(start, start + CHUNK_BYTES) };
      if (!(await this.#call.send({ part }))) {
        throw this.#call.error ?? new UnavailableError("the tunnel is closed");
      }
    }
  }
}

interface Ends {
  receive(): Promise<Uint8Array | undefined>;
  send(data: Uint8Array): Promise<void>;
  end(): void;
  close(): void;
}

/** A tunnel with the methods of a socket that HTTP clients call. */
class TunnelSocket extends Duplex {
  readonly #ends: Ends;

  constructor(ends: Ends) {
    super({ allowHalfOpen: true });
    this.#ends = ends;
  }

  override _read(): void {
    this.#ends.receive().then(
      (data) => this.push(data ?? null),
      (error: unknown) => this.destroy(error as Error),
    );
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error) => void): void {
    this.#ends.send(chunk).then(
      () => callback(),
      (error: unknown) => callback(error as Error),
    );
  }

  override _final(callback: () => void): void {
    this.#ends.end();
    callback();
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#ends.close();
    callback(error);
  }

  /** A tunnel has no timeout of its own. */
  setTimeout(): this {
    return this;
  }

  /** What is written is sent at once. */
  setNoDelay(): this {
    return this;
  }

  /** The connection to the server is watched instead. */
  setKeepAlive(): this {
    return this;
  }

  /** The connection to the server keeps the program running while the tunnel is open. */
  ref(): this {
    return this;
  }

  /** As `ref`. */
  unref(): this {
    return this;
  }
}
