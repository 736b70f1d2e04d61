/** The client: workspaces of one server. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { Backoff } from "./backoff.js";
import { Connection, LONG_MS, type CallOptions, type Token } from "./connection.js";
import { BACKENDS, WORKSPACE_STATES, type Backend, type WorkspaceState } from "./enums.js";
import { InternalError, UnavailableError, WorkspacedError } from "./errors.js";
import { LifecycleService, type WorkspaceFilterSchema } from "./gen/workspaced/v1/lifecycle_pb.js";
import { ServerService } from "./gen/workspaced/v1/server_pb.js";
import { serverInfo, workspaceInfo, type ServerInfo, type WorkspaceInfo } from "./info.js";
import { acquire, type AcquireOptions, type LeasedWorkspace } from "./lease.js";
import { listen } from "./listen.js";
import { MessageStream } from "./message-stream.js";
import { newId, workspaceSpec, type WorkspaceOptions } from "./spec.js";
import type { TlsOptions } from "./target.js";
import { Workspace } from "./workspace.js";

/** How to reach a server. Times are in milliseconds. */
export interface ConnectOptions {
  /** `host:port` or `unix:///path`; absent: `127.0.0.1:7420`. */
  address?: string | undefined;
  /** Who calls. A function is asked for each call, so that a token can be renewed. */
  token?: Token | undefined;
  /** Speak TLS; `{}` trusts the built-in authorities. */
  tls?: TlsOptions | undefined;
  /** Allow a token to go to another machine without TLS. */
  insecure?: boolean | undefined;
  /** Bounds each short call (60,000). Calls that may take long have half an hour unless their own `timeoutMs` is given. */
  timeoutMs?: number | undefined;
  /** How long a call that may be repeated is tried again (10,000). */
  retryTimeoutMs?: number | undefined;
  /** How long a stream may be without a connection before it fails (60,000). */
  resumeTimeoutMs?: number | undefined;
  /** Told what a program should know and need not act on, such as a server that is older than this client; absent: `process.emitWarning`. */
  onWarning?: ((message: string) => void) | undefined;
}

/** Which workspaces are meant; what is given must all match. */
export interface WorkspaceFilter {
  /** Labels that must be present with these values. */
  labels?: Readonly<Record<string, string>> | undefined;
  /** Any of these states. */
  states?: readonly WorkspaceState[] | undefined;
  /** Any of these backends. */
  backends?: readonly Backend[] | undefined;
  /** Any of these ids. */
  workspaceIds?: readonly string[] | undefined;
}

/** What {@link Client.initialize} takes. */
export interface InitializeOptions extends WorkspaceOptions, CallOptions {
  /** Its id; absent: the server makes one. */
  workspaceId?: string | undefined;
  /** Labels to set; ignored when it exists. */
  labels?: Readonly<Record<string, string>> | undefined;
  /** Makes a creation without an id idempotent for a day; absent: a new one. */
  requestId?: string | undefined;
  /** `false`: return at once, in state INITIALIZING. */
  wait?: boolean | undefined;
  /** Called with each change while it is being made ready. */
  onProgress?: ((info: WorkspaceInfo) => void) | undefined;
}

/**
 * A client of the server at `address`. Nothing is sent before the first call.
 *
 * ```ts
 * await using client = connect({ address: "127.0.0.1:7420" });
 * const ws = await client.initialize({ backend: "docker", image: "python:3.12" });
 * ```
 *
 * A token goes to another machine only over TLS, unless `insecure` says otherwise. Throws `TypeError`.
 */
export function connect(options: ConnectOptions = {}): Client {
  return new Client(
    new Connection({
      address: options.address ?? "127.0.0.1:7420",
      token: options.token,
      tls: options.tls,
      insecure: options.insecure ?? false,
      timeoutMs: options.timeoutMs ?? 60_000,
      retryTimeoutMs: options.retryTimeoutMs ?? 10_000,
      resumeTimeoutMs: options.resumeTimeoutMs ?? 60_000,
      onWarning: options.onWarning ?? ((message) => process.emitWarning(message, { type: "WorkspacedWarning" })),
    }),
  );
}

/**
 * A connection to a server, made by {@link connect}. `await using` or {@link Client.close} ends it, and with it the
 * streams that are open. An idle client does not keep the program running.
 */
export class Client implements AsyncDisposable {
  /** @internal */
  readonly connection: Connection;

  /** @internal */
  constructor(connection: Connection) {
    this.connection = connection;
  }

  /** How many calls are open on the wire. */
  get openCalls(): number {
    return this.connection.openCalls;
  }

  /** Close the connection. Idempotent. Calls that still run reject with `CancelledError`, later ones with `TypeError`. */
  close(): Promise<void> {
    return this.connection.close();
  }

  /** {@link Client.close}. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /**
   * Create a workspace, or re-attach to the one with this id, and wait until it is READY: half an hour unless
   * `timeoutMs` is given, since an image may be pulled.
   *
   * Idempotent by `workspaceId`, else by `requestId`; it is repeated when a connection breaks. Rejects with
   * `SpecMismatchError`, `BackendUnavailableError`, `ImageNotFoundError`, `GuestPythonMissingError`,
   * `QuotaExceededError` and `InvalidArgumentError`. After an error, and after a cancellation when nobody else waits,
   * nothing that this call made is left.
   */
  async initialize(options: InitializeOptions = {}): Promise<Workspace> {
    const spec = workspaceSpec(options);
    const { onProgress } = options;
    const workspaceId = options.workspaceId ?? (onProgress === undefined ? "" : newId()); // what is watched needs a name
    const watcher = onProgress && this.watch({ workspaceIds: [workspaceId] });
    const reported = watcher && report(watcher, onProgress);
    try {
      const response = await this.connection.unary(
        LifecycleService.method.initializeWorkspace,
        {
          workspaceId,
          ...(spec === undefined ? {} : { spec }),
          labels: { ...options.labels },
          requestId: options.requestId ?? newId(),
          noWait: options.wait === false,
        },
        { signal: options.signal, timeoutMs: options.timeoutMs ?? LONG_MS },
      );
      if (response.workspace === undefined) {
        throw new InternalError("the answer has no workspace");
      }
      return new Workspace(this.connection, response.workspace.workspaceId);
    } finally {
      watcher?.close();
      await reported;
    }
  }

  /**
   * The workspace that belongs to a user, an agent or a session, made when it is missing, under a lease that is renewed
   * as long as this program runs:
   *
   * ```ts
   * await using ws = await client.acquire({ policy: "per_session", userId: "u", agentId: "a", sessionId: "s" });
   * ```
   *
   * It may take half an hour unless `timeoutMs` is given. Rejects as {@link Client.initialize} does.
   */
  acquire(options: AcquireOptions): Promise<LeasedWorkspace> {
    return acquire(this.connection, options);
  }

  /** A handle on a workspace, without asking the server. */
  workspace(id: string): Workspace {
    return new Workspace(this.connection, id);
  }

  /** The caller's workspaces that match, by time of creation. */
  async list(filter: WorkspaceFilter & CallOptions = {}): Promise<WorkspaceInfo[]> {
    const found: WorkspaceInfo[] = [];
    const chosen = filterMessage(filter);
    let pageToken = "";
    do {
      const response = await this.connection.unary(
        LifecycleService.method.listWorkspaces,
        { pageSize: 1000, pageToken, filter: chosen },
        filter,
      );
      found.push(...response.workspaces.map(workspaceInfo));
      pageToken = response.nextPageToken;
    } while (pageToken !== "");
    return found;
  }

  /**
   * Workspaces that match: each in its present state, then every change, until the loop is left.
   *
   * After a broken connection the present states come again, but for those that were seen. A slow reader gets the
   * newest state of each. `timeoutMs` bounds nothing here.
   */
  watch(filter: WorkspaceFilter & { signal?: AbortSignal | undefined } = {}): MessageStream<WorkspaceInfo> {
    const stop = new AbortController();
    const outer = filter.signal;
    const onAbort = (): void => stop.abort(outer?.reason);
    listen(outer, onAbort);
    if (outer?.aborted === true) {
      onAbort();
    }
    const changes = watchWorkspaces(this.connection, filterMessage(filter), stop.signal);
    return new MessageStream(
      () => changes.next(),
      () => {
        outer?.removeEventListener("abort", onAbort);
        stop.abort();
      },
    );
  }

  /** What the server is and can do; with `probe` every backend is asked anew. */
  async serverInfo(options: { probe?: boolean | undefined } & CallOptions = {}): Promise<ServerInfo> {
    const response = await this.connection.unary(
      ServerService.method.getServerInfo,
      { probe: options.probe ?? false },
      options,
    );
    this.connection.noteRevision(response.apiRevision);
    return serverInfo(response);
  }
}

async function report(changes: MessageStream<WorkspaceInfo>, onProgress: (info: WorkspaceInfo) => void): Promise<void> {
  try {
    for await (const change of changes) {
      onProgress(change);
    }
  } catch (error) {
    if (!(error instanceof WorkspacedError)) {
      throw error;
    } // a watch that failed says nothing of the call, which has its own answer
  }
}

async function* watchWorkspaces(
  connection: Connection,
  filter: MessageInitShape<typeof WorkspaceFilterSchema>,
  signal: AbortSignal,
): AsyncGenerator<WorkspaceInfo, undefined> {
  const seen = new Map<string, bigint>();
  const backoff = new Backoff();
  let lostAt: number | undefined;
  for (;;) {
    const stream = connection.serverStream(LifecycleService.method.watchWorkspaces, { filter }, { signal });
    let failure: WorkspacedError = new UnavailableError("the stream ended");
    try {
      for await (const { event } of stream) {
        lostAt = undefined;
        backoff.reset();
        if (event.case !== "workspace") {
          continue;
        }
        const info = workspaceInfo(event.value);
        if (seen.get(info.workspaceId) === info.revision) {
          continue;
        }
        if (info.state === "DELETED") {
          seen.delete(info.workspaceId);
        } else {
          seen.set(info.workspaceId, info.revision);
        }
        yield info;
      }
    } catch (error) {
      if (!(error instanceof WorkspacedError)) {
        throw error;
      }
      failure = error;
    }
    const now = performance.now();
    lostAt ??= now;
    const limit = connection.retryLimit(failure, connection.resumeTimeoutMs);
    const delay = backoff.next(failure.retryAfterMs);
    if (limit === 0 || now + delay > lostAt + limit) {
      throw failure;
    }
    await connection.pause(delay, signal);
  }
}

function filterMessage(filter: WorkspaceFilter): MessageInitShape<typeof WorkspaceFilterSchema> {
  return {
    labels: { ...filter.labels },
    states: (filter.states ?? []).map((state) => WORKSPACE_STATES.number(state)),
    backends: (filter.backends ?? []).map((backend) => BACKENDS.number(backend)),
    workspaceIds: [...(filter.workspaceIds ?? [])],
  };
}
