/** Calls to a server: credentials, deadlines, cancellation and repetition. */

import type { DescMessage, DescMethod, DescMethodStreaming, DescMethodUnary, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http2";
import { setImmediate } from "node:timers/promises";
import { apiRevision } from "./api-revision.js";
import { Backoff, sleep } from "./backoff.js";
import * as errors from "./errors.js";
import { GrpcCall, type CallEvents } from "./grpc-call.js";
import { listen } from "./listen.js";
import { MessageStream } from "./message-stream.js";
import { serviceConfig } from "./service-config.js";
import { Session } from "./session.js";
import { connectionLost, hasStatus } from "./status.js";
import { isLoopback, type TlsOptions } from "./target.js";

/** What every call takes. */
export interface CallOptions {
  /** Cancels the call, here and on the server: it rejects with `CancelledError`, whose `cause` is the reason. */
  signal?: AbortSignal | undefined;
  /** Bounds the call in milliseconds: `DeadlineExceededError`. Never the process that it starts. */
  timeoutMs?: number | undefined;
}

/** What a call and its answer say beside their messages. */
export interface Metadata {
  /** Sent beside the client's own, which come first. */
  readonly sent: OutgoingHttpHeaders;
  /** What came before the first message of the last attempt. */
  initial: IncomingHttpHeaders;
  /** What came with its status; empty when none came. */
  trailing: IncomingHttpHeaders;
}

interface WireOptions extends CallOptions {
  metadata?: Metadata | undefined;
}

/** How {@link Connection} is to treat one call. */
export interface UnaryOptions extends WireOptions {
  /** Whether the call may be repeated; absent: as `clients/service_config.json` says. */
  repeatable?: boolean | undefined;
  /** For how long it is tried again, in milliseconds; absent: the client's. */
  retryTimeoutMs?: number | undefined;
}

/** How {@link Connection} is to treat one stream. */
export interface StreamOptions extends WireOptions {
  /** The call is made, and goes on, also while the client is being closed. */
  tidying?: boolean | undefined;
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
const REVISION_KEY = "x-workspaced-api-revision";
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
  readonly #open = new Set<Open>();
  readonly #companions = new Set<Promise<void>>();
  readonly #tidying = new Set<Promise<void>>();
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
  }

  /** Aborted when the client is closed; its reason is a `CancelledError`. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** How many calls are open on the wire. */
  get openCalls(): number {
    return this.#session.openCalls;
  }

  /**
   * Begin a call of any kind. It ends with the signal, with the deadline (none unless `timeoutMs` says so), or with the
   * client. Whoever begins it reads it to its end or cancels it.
   */
  call<I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }, options: StreamOptions): GrpcCall<I, O> {
    let call: GrpcCall<I, O> | undefined; // an aborted signal ends it while it is made
    const { metadata } = options;
    if (metadata !== undefined) {
      metadata.initial = metadata.trailing = {};
    }
    const events: CallEvents = {
      metadata: (headers) => this.#onMetadata(headers, metadata),
      ended: () => call !== undefined && this.#open.delete(call),
    };
    call = new GrpcCall(method.input, method.output, options.signal, deadline(options.timeoutMs), events);
    if (call.over) {
      return call;
    }
    if (options.tidying !== true) {
      this.#open.add(call);
      if (this.#closing.signal.aborted) {
        call.cancel(new TypeError("the client is closed"));
        return call;
      }
    }
    const headers = { ...metadata?.sent, ...this.#headers(`/${method.parent.typeName}/${method.name}`, options.timeoutMs) };
    const { token } = this.#options;
    if (typeof token === "function") {
      void this.#begin(call, this.#withToken(headers, token));
      return call;
    }
    if (token !== undefined) {
      headers["authorization"] = `Bearer ${token}`;
    }
    try {
      const stream = this.#session.tryRequest(headers);
      if (stream !== undefined) {
        call.begin(stream);
      } else {
        void this.#begin(call, headers);
      }
    } catch (error) {
      call.cancel(error); // metadata that HTTP/2 does not allow
    }
    return call;
  }

  /** One unary call, tried once. Rejects with a `WorkspacedError`. */
  async once<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    { signal, timeoutMs = this.timeoutMs, metadata }: WireOptions = {},
  ): Promise<MessageShape<O>> {
    const call = this.call(method, { signal, timeoutMs, metadata });
    try {
      call.sendLast(request);
      return await only(call);
    } finally {
      call.cancel(undefined);
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
    return this.repeat((timeoutMs) => this.once(method, request, { ...options, timeoutMs }), options);
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
    const stop = new AbortController();
    const abort = (): void => stop.abort(signal?.aborted === true ? signal.reason : this.#closing.signal.reason);
    const pausing: Open = { cancel: abort };
    listen(signal, abort);
    this.#open.add(pausing);
    if (signal?.aborted === true || this.#closing.signal.aborted) {
      abort();
    }
    try {
      await sleep(ms, stop.signal);
    } finally {
      signal?.removeEventListener("abort", abort);
      this.#open.delete(pausing);
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
   * A call of any streaming kind, begun by the first look for an answer. The iterator of `requests` is asked for the next
   * one when the last is on its way, and is returned when the call ends; what it throws ends the call. No deadline unless
   * `timeoutMs` says so.
   */
  stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodStreaming<I, O>,
    requests: AsyncIterable<MessageInitShape<I>>,
    options: StreamOptions = {},
  ): MessageStream<MessageShape<O>> {
    return this.#lazy(method, options, (call) => void pump(call, requests));
  }

  /** A call of one request and many answers. */
  serverStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodStreaming<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): MessageStream<MessageShape<O>> {
    return this.#lazy(method, options, (call) => call.sendLast(request));
  }

  /** The answers of a call that the first look for one begins. */
  #lazy<I extends DescMessage, O extends DescMessage>(
    method: DescMethodStreaming<I, O>,
    options: StreamOptions,
    send: (call: GrpcCall<I, O>) => void,
  ): MessageStream<MessageShape<O>> {
    let call: GrpcCall<I, O> | undefined;
    return new MessageStream(
      () => {
        if (call === undefined) {
          call = this.call(method, options);
          send(call);
        }
        return call.next();
      },
      () => call?.cancel(undefined),
    );
  }

  /** A call of many requests and one answer. An error of `requests` cancels the call, and is what this rejects with. */
  async clientStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodStreaming<I, O>,
    requests: AsyncIterable<MessageInitShape<I>>,
    options: StreamOptions = {},
  ): Promise<MessageShape<O>> {
    const call = this.call(method, options);
    void pump(call, requests);
    try {
      return await only(call);
    } finally {
      call.cancel(undefined);
    }
  }

  /** Run beside the caller until it ends or the client is closed; `work` ends soon after its signal is aborted. */
  companion(work: (signal: AbortSignal) => Promise<void>): void {
    const running = work(this.#closing.signal).finally(() => this.#companions.delete(running));
    this.#companions.add(running);
  }

  /** Tidy up beside the caller; `work` does not reject and is bounded in time, and the client's end waits for it. */
  tidy(work: Promise<void>): void {
    const running = work.finally(() => this.#tidying.delete(running));
    this.#tidying.add(running);
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
    const reason = new errors.CancelledError("the client is closed", { reason: "CLIENT_CLOSED" });
    if (!this.#closing.signal.aborted) {
      this.#closing.abort(reason);
    }
    for (const open of this.#open) {
      open.cancel(reason);
    }
    await Promise.all(this.#companions);
    await setImmediate(); // those that were cancelled say now what they have to tidy up
    while (this.#tidying.size > 0) {
      await Promise.all(this.#tidying);
    }
    this.#session.close();
  }

  #headers(path: string, timeoutMs: number | undefined): OutgoingHttpHeaders {
    const headers: OutgoingHttpHeaders = {
      ":method": "POST",
      ":path": path,
      "content-type": "application/grpc+proto",
      te: "trailers",
      "user-agent": "workspaced-typescript",
    };
    const ms = deadline(timeoutMs);
    if (ms !== undefined) {
      headers["grpc-timeout"] = ms < 1e8 ? `${ms}m` : `${Math.ceil(ms / 1000)}S`;
    }
    return headers;
  }

  async #withToken(headers: OutgoingHttpHeaders, source: () => string | Promise<string>): Promise<OutgoingHttpHeaders> {
    const token = await source();
    checkToken(token);
    return { ...headers, authorization: `Bearer ${token}` };
  }

  /** Everything that goes wrong ends the call. */
  async #begin(call: GrpcCall<DescMessage, DescMessage>, headers: OutgoingHttpHeaders | Promise<OutgoingHttpHeaders>): Promise<void> {
    let ready: OutgoingHttpHeaders;
    try {
      ready = await headers;
    } catch (error) {
      call.cancel(error); // the program's own, from its source of tokens
      return;
    }
    try {
      call.begin(await this.#session.request(ready));
    } catch (cause) {
      if (cause instanceof TypeError || (cause instanceof Error && "syscall" in cause && cause.syscall === "open")) {
        call.cancel(cause); // metadata, or a file of the TLS options: nothing that another attempt could mend
        return;
      }
      const why = cause instanceof Error ? cause.message : String(cause);
      call.cancel(new errors.UnavailableError(`${this.address} cannot be reached: ${why}`, { cause }));
    }
  }

  #onMetadata(headers: IncomingHttpHeaders, metadata: Metadata | undefined): void {
    this.answered = true;
    if (metadata !== undefined) {
      metadata[hasStatus(headers) ? "trailing" : "initial"] = headers;
    }
    const revision = headers[REVISION_KEY];
    if (typeof revision === "string" && /^\d{1,9}$/.test(revision)) {
      this.noteRevision(Number(revision));
    }
  }

  /** The server is of this revision of the API. Warns, once, when that or this client is older. */
  noteRevision(revision: number): void {
    if (revision < apiRevision) {
      this.warn(
        `the server at ${this.address} implements revision ${revision} of the API, older than revision ${apiRevision} ` +
          "that this client was made for: what was added since is not there (UNIMPLEMENTED); upgrade the server",
      );
    } else if (revision > apiRevision) {
      this.warn(
        `this client was made for revision ${apiRevision} of the API, older than revision ${revision} of the server at ` +
          `${this.address}: it does not know all that the server can do; upgrade the client`,
      );
    }
  }
}

/** What ends with the client. */
interface Open {
  cancel(error: unknown): void;
}

/** Send what there is to send, until the call is over. */
async function pump<I extends DescMessage>(call: GrpcCall<I, DescMessage>, requests: AsyncIterable<MessageInitShape<I>>): Promise<void> {
  try {
    for await (const request of requests) {
      if (!(await call.send(request))) {
        return;
      }
    }
    call.end();
  } catch (error) {
    call.cancel(error);
  }
}

/** The one answer of a call. */
async function only<O extends DescMessage>(call: GrpcCall<DescMessage, O>): Promise<MessageShape<O>> {
  const first = await call.next();
  if (first.done === true) {
    throw new errors.InternalError("the server ended the call without an answer");
  }
  const end = await call.next();
  if (end.done !== true) {
    throw new errors.InternalError("the server answered twice");
  }
  return first.value;
}

function deadline(timeoutMs: number | undefined): number | undefined {
  return timeoutMs === undefined || timeoutMs > MAX_TIMER_MS ? undefined : Math.max(1, Math.ceil(timeoutMs));
}

function checkToken(token: string): void {
  if (!/^[\x20-\x7e]+$/.test(token)) {
    throw new TypeError("a token is printable ASCII");
  }
}
