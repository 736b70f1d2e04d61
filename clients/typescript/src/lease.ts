/** A workspace that is held by a lease. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { Backoff, cancelled } from "./backoff.js";
import { LONG_MS, type CallOptions, type Connection } from "./connection.js";
import { ALLOCATION_POLICIES, type AllocationPolicy } from "./enums.js";
import { DeadlineExceededError, LeaseNotFoundError, UnavailableError, WorkspacedError } from "./errors.js";
import { LifecycleService, type AcquireWorkspaceRequestSchema, type AcquireWorkspaceResponse } from "./gen/workspaced/v1/lifecycle_pb.js";
import { duration, when } from "./info.js";
import { workspaceSpec, type WorkspaceOptions } from "./spec.js";
import { who, type Who } from "./who.js";
import { Workspace } from "./workspace.js";

/** Whose workspace is acquired. What is given of a spec overrides that of the template. */
export interface AcquireOptions extends WorkspaceOptions, CallOptions, Who {
  /** Who shares it: all agents of a user, the sessions of an agent, or nobody. */
  policy: AllocationPolicy;
  userId: string;
  /** The length of the lease in milliseconds (60,000), at most an hour. */
  leaseDurationMs?: number | undefined;
}

type Request = MessageInitShape<typeof AcquireWorkspaceRequestSchema>;

const LEASE_MS = 60_000;
const RELEASE_MS = 5_000;

/** @internal */
export async function acquire(connection: Connection, options: AcquireOptions): Promise<LeasedWorkspace> {
  const { policy, userId, leaseDurationMs = LEASE_MS, template = "" } = options;
  const spec = workspaceSpec({ ...options, template: undefined });
  const request: Request = {
    policy: ALLOCATION_POLICIES.number(policy),
    userId,
    ...who(options),
    template,
    leaseDuration: duration(leaseDurationMs),
    ...(spec !== undefined && { spec }),
  };
  const method = LifecycleService.method.acquireWorkspace;
  const call = { signal: options.signal, timeoutMs: options.timeoutMs ?? LONG_MS, repeatable: true };
  const sent = performance.now();
  const response = await connection.unary(method, request, call);
  return new LeasedWorkspace(connection, request, response, leaseDurationMs, sent);
}

/**
 * A workspace from `Client.acquire`. Its lease is renewed in the background until {@link LeasedWorkspace.release}, or
 * until the scope of `await using` is left; then the workspace's idle time begins. Renewing does not keep a program
 * running, and when the client is closed before, the lease lasts until its time.
 *
 * A lease that was lost, because this program or the server slept longer than it lasts, is acquired again. What ran in
 * the workspace may have ended meanwhile, which {@link LeasedWorkspace.lost} tells.
 */
export class LeasedWorkspace extends Workspace implements AsyncDisposable {
  /** Whether the call made the workspace. */
  readonly created: boolean;
  readonly #request: Request;
  readonly #durationMs: number;
  readonly #lost = new AbortController();
  readonly #over = new AbortController();
  readonly #onClosing = (): void => this.#stop();
  readonly #backoff = new Backoff();
  #leaseId: string;
  #expireTime: Date;
  #held: number;
  #timer: NodeJS.Timeout | undefined;
  #renewing: Promise<void> | undefined;
  #released: Promise<void> | undefined;

  /** @internal */
  constructor(connection: Connection, request: Request, response: AcquireWorkspaceResponse, durationMs: number, sent: number) {
    super(connection, response.workspace?.workspaceId ?? "");
    this.created = response.created;
    this.#request = request;
    this.#durationMs = durationMs;
    this.#leaseId = response.lease?.leaseId ?? "";
    this.#expireTime = when(response.lease?.expireTime) ?? new Date();
    this.#held = sent;
    connection.closing.addEventListener("abort", this.#onClosing, { once: true });
    this.#schedule(durationMs / 3);
  }

  /** The lease, as the API knows it. Changes when it is acquired again. */
  get leaseId(): string {
    return this.#leaseId;
  }

  /** When the lease ends unless it is renewed, by the server's clock. */
  get leaseExpireTime(): Date {
    return this.#expireTime;
  }

  /**
   * Aborted when the lease ended without having been renewed: the workspace may have been closed for idleness since, and
   * its programs with it. Its reason is a `WorkspacedError`. A release is no loss.
   */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Give the lease back. Idempotent. What cannot be told to the server ends by itself, when the lease does. */
  release(options: CallOptions = {}): Promise<void> {
    this.#released ??= this.#release(options);
    return this.#released;
  }

  /** {@link LeasedWorkspace.release}. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }

  async #release({ signal, timeoutMs = RELEASE_MS }: CallOptions): Promise<void> {
    this.#stop();
    await this.#renewing;
    const method = LifecycleService.method.releaseWorkspace;
    try {
      await this.connection.unary(method, { leaseId: this.#leaseId }, { signal, timeoutMs, retryTimeoutMs: 0 });
    } catch (error) {
      if (!(error instanceof UnavailableError || error instanceof DeadlineExceededError)) {
        throw error;
      }
      this.connection.warn(`the lease of ${this.id} was not released: ${error.message}`);
    }
  }

  #stop(): void {
    clearTimeout(this.#timer);
    this.#over.abort(cancelled(undefined));
    this.connection.closing.removeEventListener("abort", this.#onClosing);
  }

  #schedule(delayMs: number): void {
    this.#timer = setTimeout(() => {
      this.#renewing = this.#renew();
    }, delayMs);
    this.#timer.unref();
  }

  /** Renews once, and sees to the next time. Time is counted from when a renewal was sent, by this machine's own clock,
   * so that clocks that differ do no harm. */
  async #renew(): Promise<void> {
    const sent = performance.now();
    const end = this.#held + this.#durationMs;
    try {
      await this.#ask(Math.max(1_000, end - sent));
      this.#held = sent;
      this.#backoff.reset();
    } catch (error) {
      if (this.#over.signal.aborted) {
        return;
      }
      // Also what the program's own source of tokens threw: nobody waits here who could be told.
      const failure = error instanceof WorkspacedError ? error : new UnavailableError(String(error), { cause: error });
      if (performance.now() >= end) {
        this.#lose(failure);
      }
      this.connection.warn(`the lease of ${this.id} was not renewed: ${failure.message}`);
    }
    if (this.#over.signal.aborted) {
      return;
    }
    const next = this.#held === sent ? this.#durationMs / 3 : this.#backoff.next();
    this.#schedule(Math.max(0, this.#held === sent ? sent + next - performance.now() : next));
  }

  async #ask(timeoutMs: number): Promise<void> {
    const signal = this.#over.signal;
    const { renewLease, acquireWorkspace } = LifecycleService.method;
    try {
      const { lease } = await this.connection.unary(renewLease, { leaseId: this.#leaseId }, { signal, timeoutMs });
      this.#expireTime = when(lease?.expireTime) ?? this.#expireTime;
    } catch (error) {
      if (!(error instanceof LeaseNotFoundError)) {
        throw error;
      }
      this.#lose(error);
      const { lease } = await this.connection.unary(acquireWorkspace, this.#request, { signal, timeoutMs: LONG_MS, repeatable: true });
      this.#leaseId = lease?.leaseId ?? this.#leaseId;
      this.#expireTime = when(lease?.expireTime) ?? this.#expireTime;
    }
  }

  #lose(error: WorkspacedError): void {
    this.#lost.abort(error);
  }
}
