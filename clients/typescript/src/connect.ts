/**
 * Clients of Connect, for the calls and fields of the API that this library does not wrap. Of `@connectrpc/connect`,
 * which a program brings itself.
 *
 * ```ts
 * import { createClient } from "@connectrpc/connect";
 * import { connectTransport } from "@workspaced/client/connect";
 * import { ServerService } from "@workspaced/client/v1";
 *
 * const { version } = await createClient(ServerService, connectTransport(client)).getServerInfo({});
 * ```
 *
 * @module connect
 */

import { ConnectError, type Code, type StreamResponse, type Transport, type UnaryResponse } from "@connectrpc/connect";
import type { DescMessage, DescMethodStreaming, DescMethodUnary, MessageInitShape } from "@bufbuild/protobuf";
import type { IncomingHttpHeaders } from "node:http2";
import type { Client } from "./client.js";
import type { Connection, Metadata } from "./connection.js";
import { WorkspacedError } from "./errors.js";
import { MessageStream } from "./message-stream.js";
import { CODES, decodeDetails } from "./status.js";

type HeadersInit = ConstructorParameters<typeof Headers>[0]; // the types of Node 20 do not name it

/**
 * A transport of Connect over the connection of a client: with its token, TLS and keepalive, and its end.
 *
 * Calls are as Connect's gRPC transport makes them. A unary one has the client's `timeoutMs` unless it is given its own,
 * and is tried again as the client's are; a stream has no deadline but its own, and is neither tried nor attached again.
 * `timeoutMs: 0` is none. Headers of a call are sent beside the client's own, which they cannot replace. Aborted, timed
 * out and left calls are cancelled on the server at once, so that it keeps nothing of a file half sent.
 *
 * Errors are `ConnectError` with `code`, `rawMessage`, `metadata` and details, for which `@workspaced/client/v1` has the
 * schemas; the `cause` is the {@link WorkspacedError}. There are no interceptors; `contextValues` are ignored.
 */
export function connectTransport(client: Client): Transport {
  return new ClientTransport(client.connection);
}

class ClientTransport implements Transport {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    signal: AbortSignal | undefined,
    timeoutMs: number | undefined,
    header: HeadersInit,
    input: MessageInitShape<I>,
  ): Promise<UnaryResponse<I, O>> {
    const metadata = begin(header);
    const options = { signal, timeoutMs: deadline(timeoutMs), metadata };
    const message = await translated(this.#connection.unary(method, input, options), metadata);
    return {
      stream: false,
      service: method.parent,
      method,
      header: headers(metadata.initial),
      message,
      trailer: headers(metadata.trailing),
    };
  }

  async stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodStreaming<I, O>,
    signal: AbortSignal | undefined,
    timeoutMs: number | undefined,
    header: HeadersInit,
    input: AsyncIterable<MessageInitShape<I>>,
  ): Promise<StreamResponse<I, O>> {
    const metadata = begin(header);
    const messages = this.#connection.stream(method, input, { signal, timeoutMs: deadline(timeoutMs), metadata });
    const next = () => translated(messages.next(), metadata);
    let first: ReturnType<typeof next> | undefined = next();
    await first; // the headers came before it
    const rest = () => {
      const answer = first ?? next();
      first = undefined;
      return answer;
    };
    return {
      stream: true,
      service: method.parent,
      method,
      header: headers(metadata.initial),
      message: new MessageStream(rest, () => messages.close()),
      get trailer() {
        return headers(metadata.trailing);
      },
    };
  }
}

function begin(header: HeadersInit): Metadata {
  return { sent: Object.fromEntries(new Headers(header)), initial: {}, trailing: {} };
}

/** Connect's 0 is no deadline, and not one that passed. */
function deadline(timeoutMs: number | undefined): number | undefined {
  return timeoutMs !== undefined && timeoutMs <= 0 ? Infinity : timeoutMs;
}

function headers(received: IncomingHttpHeaders): Headers {
  const fields = Object.entries(received).filter(([name]) => !name.startsWith(":"));
  return new Headers(fields.map(([name, value]) => [name, String(value)]));
}

/** The same, with the errors of Connect. */
async function translated<T>(work: Promise<T>, metadata: Metadata): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw error instanceof WorkspacedError ? connectError(error, metadata) : ConnectError.from(error);
  }
}

function connectError(cause: WorkspacedError, { initial, trailing }: Metadata): ConnectError {
  const code: Code = CODES.indexOf(cause.code); // Connect's are the numbers of gRPC
  const error = new ConnectError(cause.message, code, headers({ ...initial, ...trailing }), undefined, cause);
  const details = trailing["grpc-status-details-bin"];
  try {
    error.details = details === undefined ? [] : decodeDetails(String(details));
  } catch {
    error.details = []; // damaged, as the cause of the cause tells
  }
  return error;
}
