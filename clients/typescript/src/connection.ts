/** Calls to a server: credentials, deadlines, cancellation and repetition. */

import type { DescMessage, DescMethodStreaming, DescMethodUnary, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { Backoff, cancelled, sleep } from "./backoff.js";
import * as errors from "./errors.js";
import { MessageStream } from "./message-stream.js";
import { serviceConfig } from "./service-config.js";
import { Session } from "./session.js";
import { connectionLost, fromStatus } from "./status.js";
import { isLoopback, type TlsOptions } from "./target.js";

/** What every call takes. */
export interface CallOptions {
  /** Cancels the call, here and on the server: it rejects with `CancelledError`, whose `cause` is the reason. */
  signal?: AbortSignal | undefined;
  /** Bounds the call in milliseconds: `DeadlineExceededError`. Never the process that it starts. */
  timeoutMs?: number | undefined;
}

/** How {@link Connection} is to treat one call. */
export interface UnaryOptions extends CallOptions {
  /** Whether the call may be repeated; absent: as `clients/service_config.json` says. */
  repeatable?: boolean | undefined;
  /** For how long it is tried again, in milliseconds; absent: the client's. */
  retryTimeoutMs?: number | undefined;
}

/** A token, or what gives one for each call: then it can change while the client lives. */
export type Token = string | (() => string | Promise<string>);

/** How to reach a server. */
export interface ConnectionOptions {
  address: string;
  token: Token | undefined;
  tls: TlsOptions | undefined;
  insecure: boolean;
  timeoutMs: number;
  retryTimeoutMs: number;
  resumeTimeoutMs: number;
  onWarning: (message: string) => void;
}

/** How long a server is tried that never answered before. */
const FIRST_CONTACT_MS = 2_000;
/** How long a workspace that its server cannot reach is tried again: a guest that was killed is back well before. */
const UNREACHABLE_MS = 10_000;
/** The deadline of a call that may have to pull an image. */
export const LONG_MS = 1_800_000;
const MAX_MESSAGE_BYTES = 8 << 20;
const MAX_TIMER_MS = 2 ** 31 - 1;

const REPEATABLE: ReadonlySet<string> = new Set(
  serviceConfig.methodConfig.flatMap((part) => part.name.map(({ service, method }) => `${service}/${method}`)),
);

/** Everything that talks to the server goes through here. */
export class Connection {
  readonly address: string;
  readonly timeoutMs: number;
  readonly retryTimeoutMs: number;
  readonly resumeTimeoutMs: number;
  /** Whether the server was ever there: one that was is waited for, one that never was is an error soon. */
  answered = false;
  readonly #options: ConnectionOptions;
  readonly #session: Session;
  readonly #transport: Transport;
  readonly #open = new Set<Call>();
  readonly #companions = new Set<Promise<void>>();
  readonly #closing = new AbortController();
  readonly #warned = new Set<string>();

  /** Throws `TypeError` for what cannot be. */
  constructor(options: ConnectionOptions) {
    const { address, token, tls, insecure } = options;
    if (token !== undefined && tls === undefined && !insecure && !isLoopback(address)) {
      throw new TypeError(`a token to ${JSON.stringify(address)} needs tls, or insecure: true to send it in the clear`);
    }
    if (typeof token === "string") {
      checkToken(token);
    }
    if (tls !== undefined && (tls.cert === undefined) !== (tls.key === undefined)) {
      throw new TypeError("tls.cert and tls.key belong together");
    }
    this.#options = options;
    this.address = address;
    this.timeoutMs = options.timeoutMs;
    this.retryTimeoutMs = options.retryTimeoutMs;
    this.resumeTimeoutMs = options.resumeTimeoutMs;
    this.#session = new Session(address, tls);
    const session = this.#session;
    this.#transport = createGrpcTransport({
      baseUrl: session.authority,
      readMaxBytes: MAX_MESSAGE_BYTES,
      writeMaxBytes: MAX_MESSAGE_BYTES,
      sessionManager: {
        authority: session.authority,
        request: (method, path, headers, requestOptions) =>
          session.request({ ...headers, ":method": method, ":path": path }, requestOptions),
        notifyResponseByteRead: () => undefined,
      },
    });
  }

  /** Aborted when the client is closed; its reason is a `CancelledError`. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** How many calls are open on the wire. */
  get openCalls(): number {
    return this.#session.openCalls;
  }

  /** One unary call, tried once. Rejects with a `WorkspacedError`. */
  async once<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const call = this.#call(options.signal);
    try {
      const headers = await this.#headers(call);
      const timeoutMs = deadline(options.timeoutMs ?? this.timeoutMs);
      const response = await this.#transport.unary(method, call.signal, timeoutMs, headers, request);
      this.answered = true;
      return response.message;
    } catch (error) {
      throw call.error(error);
    } finally {
      call.end();
    }
  }

  /**
   * One unary call. One that may be repeated is tried again while the connection is down, for `retryTimeoutMs`; a
   * server that never answered is tried for 2 s.
   */
  unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options: UnaryOptions = {},
  ): Promise<MessageShape<O>> {
    if (!(options.repeatable ?? REPEATABLE.has(`${method.parent.typeName}/${method.name}`))) {
      return this.once(method, request, options);
    }
    return this.repeat((timeoutMs) => this.once(method, request, { signal: options.signal, timeoutMs }), options);
  }

  /** The same for any work that may be repeated; it is given the milliseconds that are left. */
  async repeat<T>(work: (timeoutMs: number) => Promise<T>, options: UnaryOptions = {}): Promise<T> {
    const timeoutMs = options.timeoutMs ?? this.timeoutMs;
    const retryTimeoutMs = options.retryTimeoutMs ?? this.retryTimeoutMs;
    const start = performance.now();
    const backoff = new Backoff();
    for (;;) {
      try {
        return await work(Math.max(1, start + timeoutMs - performance.now()));
      } catch (error) {
        if (!(error instanceof errors.WorkspacedError)) {
          throw error;
        }
        const limit = this.retryLimit(error, retryTimeoutMs);
        const delay = backoff.next(error.retryAfterMs);
        if (limit === 0 || performance.now() + delay > start + Math.min(limit, timeoutMs)) {
          throw error;
        }
        await this.pause(delay, options.signal);
      }
    }
  }

  /** Wait, unless the signal is aborted or the client is closed: `CancelledError`. */
  async pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
    const call = this.#call(signal);
    try {
      await sleep(ms, call.signal);
    } catch (error) {
      throw call.error(error);
    } finally {
      call.end();
    }
  }

  /** For how many milliseconds of failure a call that may be repeated is tried again after this error; 0 for never. */
  retryLimit(error: errors.WorkspacedError, limitMs: number): number {
    if (error instanceof errors.UnreachableError) {
      return Math.min(limitMs, UNREACHABLE_MS);
    }
    if (connectionLost(error)) {
      return this.answered ? limitMs : Math.min(limitMs, FIRST_CONTACT_MS);
    }
    return error instanceof errors.UnavailableError && error.retryAfterMs !== undefined ? limitMs : 0;
  }

  /**
   * A call of any streaming kind. The iterator of `requests` is asked for the next one when the last is on its way; it
   * is returned when the call ends. No deadline unless `timeoutMs` says so.
   */
  stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodStreaming<I, O>,
    requests: AsyncIterable<MessageInitShape<I>>,
    options: CallOptions = {},
  ): MessageStream<MessageShape<O>> {
    const call = this.#call(options.signal);
    let messages: AsyncIterator<MessageShape<O>> | undefined;
    const next = async (): Promise<IteratorResult<MessageShape<O>, undefined>> => {
      try {
        if (messages === undefined) {
          const headers = await this.#headers(call);
          const timeoutMs = options.timeoutMs === undefined ? undefined : deadline(options.timeoutMs);
          const response = await this.#transport.stream(method, call.signal, timeoutMs, headers, requests);
          messages = response.message[Symbol.asyncIterator]();
        }
        const result = await messages.next();
        this.answered = true;
        return result.done === true ? { done: true, value: undefined } : result;
      } catch (error) {
        throw call.error(error);
      }
    };
    return new MessageStream(next, () => call.end());
  }

  /** A call of one request and many answers. */
  serverStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodStreaming<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): MessageStream<MessageShape<O>> {
    return this.stream(method, one(request), options);
  }

  /** A call of many requests and one answer. An error of `requests` cancels the call, and is what this rejects with. */
  async clientStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodStreaming<I, O>,
    requests: AsyncIterable<MessageInitShape<I>>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const source = new Source(requests);
    const answers = this.stream(method, source, options);
    try {
      const result = await answers.next();
      if (result.done === true) {
        throw new errors.InternalError("the server ended the call without an answer");
      }
      const end = await answers.next();
      if (end.done !== true) {
        throw new errors.InternalError("the server answered twice");
      }
      return result.value;
    } catch (error) {
      throw source.failed ? source.error : error;
    } finally {
      answers.close();
    }
  }

  /** Run beside the caller until it ends or the client is closed; `work` ends soon after its signal is aborted. */
  companion(work: (signal: AbortSignal) => Promise<void>): void {
    const running = work(this.#closing.signal).finally(() => this.#companions.delete(running));
    this.#companions.add(running);
  }

  /** Tell the program something that it should know, once. */
  warn(message: string): void {
    if (!this.#warned.has(message)) {
      this.#warned.add(message);
      this.#options.onWarning(message);
    }
  }

  /** End everything. Idempotent. Calls that still run reject with `CancelledError`. */
  async close(): Promise<void> {
    this.#closing.abort(new errors.CancelledError("the client is closed"));
    for (const call of this.#open) {
      call.close();
    }
    await Promise.all(this.#companions);
    this.#session.close();
  }

  #call(signal: AbortSignal | undefined): Call {
    const call = new Call(signal, this.#open);
    if (this.#closing.signal.aborted) {
      call.close();
    }
    return call;
  }

  async #headers(call: Call): Promise<Headers> {
    const headers = new Headers({ "user-agent": "workspaced-typescript" });
    const { token } = this.#options;
    if (token !== undefined) {
      const value = typeof token === "string" ? token : await token();
      checkToken(value);
      headers.set("authorization", `Bearer ${value}`);
    }
    if (call.signal.aborted) {
      throw cancelled(call.signal);
    }
    return headers;
  }
}

/** What one call is cancelled by: the caller's signal, the end of its use, and the end of the client. */
class Call {
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal | undefined;
  readonly #open: Set<Call>;
  readonly #onAbort = (): void => this.#controller.abort(this.#outer?.reason);
  #closed = false;

  constructor(outer: AbortSignal | undefined, open: Set<Call>) {
    this.#outer = outer;
    this.#open = open;
    open.add(this);
    if (outer?.aborted === true) {
      this.#onAbort();
    } else {
      outer?.addEventListener("abort", this.#onAbort, { once: true });
    }
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** What the caller is told. */
  error(raised: unknown): unknown {
    if (this.#outer?.aborted === true) {
      return cancelled(this.#outer);
    }
    if (this.#closed) {
      return new errors.CancelledError("the client is closed");
    }
    if (raised instanceof TypeError) {
      return raised;
    }
    return fromStatus(raised);
  }

  /** The client is being closed. */
  close(): void {
    this.#closed = true;
    this.end();
  }

  /** The call is over: what is left of it ends. */
  end(): void {
    this.#outer?.removeEventListener("abort", this.#onAbort);
    this.#open.delete(this);
    this.#controller.abort();
  }
}

/** Requests, and the error that giving them ended with. */
class Source<T> implements AsyncIterable<T> {
  failed = false;
  error: unknown;
  readonly #requests: AsyncIterable<T>;

  constructor(requests: AsyncIterable<T>) {
    this.#requests = requests;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    try {
      yield* this.#requests;
    } catch (error) {
      this.failed = true;
      this.error = error;
      throw error;
    }
  }
}

async function* one<T>(value: T): AsyncGenerator<T> {
  yield await Promise.resolve(value);
}

function deadline(timeoutMs: number): number | undefined {
  return timeoutMs > MAX_TIMER_MS ? undefined : Math.max(1, Math.ceil(timeoutMs));
}

function checkToken(token: string): void {
  if (!/^[\x20-\x7e]+$/.test(token)) {
    throw new TypeError("a token is printable ASCII");
  }
}
