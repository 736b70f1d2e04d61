/** What the server tells of workspaces, ports and itself. */

import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";
import { BACKENDS, PHASES, SCOPES, WORKSPACE_STATES, type Backend, type Phase, type Scope, type WorkspaceState } from "./enums.js";
import type { Port } from "./gen/workspaced/v1/port_pb.js";
import type { BackendInfo as PbBackendInfo, GetServerInfoResponse } from "./gen/workspaced/v1/server_pb.js";
import type { Workspace, WorkspaceSpec } from "./gen/workspaced/v1/workspace_pb.js";

/** How far a workspace in state INITIALIZING is. */
export interface Progress {
  readonly phase: Phase;
  /** Part of the phase that is done, 0 to 1; `undefined` when unknown. */
  readonly fraction: number | undefined;
  readonly message: string;
}

/** A workspace as the server knows it. */
export interface WorkspaceInfo {
  readonly workspaceId: string;
  readonly backend: Backend;
  readonly state: WorkspaceState;
  /** Why it is in this state, for people; set with DEGRADED and FAILED. */
  readonly stateReason: string;
  readonly image: string;
  /** Absolute path of its directory, as its processes see it. */
  readonly workdir: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly owner: string;
  readonly createTime: Date | undefined;
  readonly updateTime: Date | undefined;
  readonly lastUsedTime: Date | undefined;
  /** When it will be closed for idleness. */
  readonly expireTime: Date | undefined;
  readonly progress: Progress | undefined;
  /** Grows with every change. */
  readonly revision: bigint;
  /** Its whole spec, with secrets redacted. */
  readonly spec: WorkspaceSpec | undefined;
}

/** A TCP port that listens inside a workspace. */
export interface PortInfo {
  readonly port: number;
  readonly address: string;
  /** The process that listens; empty when unknown. */
  readonly processId: string;
  readonly pid: number;
}

/** What the server knows of a backend. */
export interface BackendInfo {
  readonly backend: Backend;
  readonly available: boolean;
  /** Why it is not available, for people. */
  readonly unavailableReason: string;
  readonly version: string;
  /** What it can do: names of the fields of `workspaced.v1.Capabilities` that hold, for example `isolation`. */
  readonly capabilities: ReadonlySet<string>;
}

/** What the server accepts, in bytes but for the page size. */
export interface Limits {
  readonly maxRequestBytes: number;
  readonly maxChunkBytes: number;
  readonly maxRunOutputBytes: number;
  readonly maxJournalBytes: number;
  readonly maxPageSize: number;
}

/** What a server is and can do. */
export interface ServerInfo {
  readonly version: string;
  readonly apiRevision: number;
  readonly backends: readonly BackendInfo[];
  readonly defaultBackend: Backend;
  readonly limits: Limits;
  readonly principal: string;
  /** What the token allows. */
  readonly scopes: readonly Scope[];
  readonly startTime: Date | undefined;
  /** Changes with each start of the server. */
  readonly instanceId: string;
  readonly templates: readonly string[];
}

/** A time; `undefined` for one that is not set. */
export function when(stamp: Timestamp | undefined): Date | undefined {
  return stamp === undefined || (stamp.seconds === 0n && stamp.nanos === 0)
    ? undefined
    : new Date(Number(stamp.seconds) * 1000 + Math.floor(stamp.nanos / 1e6));
}

/** Milliseconds as a duration. Throws `TypeError` for a negative number. */
export function duration(ms: number): { seconds: bigint; nanos: number } {
  if (!(ms >= 0) || !Number.isFinite(ms)) {
    throw new TypeError(`${ms} ms is no duration`);
  }
  const seconds = Math.floor(ms / 1000);
  return { seconds: BigInt(seconds), nanos: Math.min(999_999_999, Math.floor((ms - seconds * 1000) * 1e6)) };
}

/** A duration in milliseconds. */
export function milliseconds(span: Duration | undefined): number {
  return span === undefined ? 0 : Number(span.seconds) * 1000 + span.nanos / 1e6;
}

/** From the message. */
export function workspaceInfo(proto: Workspace): WorkspaceInfo {
  const { progress } = proto;
  return {
    workspaceId: proto.workspaceId,
    backend: BACKENDS.name(proto.backend),
    state: WORKSPACE_STATES.name(proto.state),
    stateReason: proto.stateReason,
    image: proto.spec?.image ?? "",
    workdir: proto.workdir,
    labels: proto.labels,
    owner: proto.owner,
    createTime: when(proto.createTime),
    updateTime: when(proto.updateTime),
    lastUsedTime: when(proto.lastUsedTime),
    expireTime: when(proto.expireTime),
    progress: progress && {
      phase: PHASES.name(progress.phase),
      fraction: progress.fraction >= 0 ? progress.fraction : undefined,
      message: progress.message,
    },
    revision: proto.revision,
    spec: proto.spec,
  };
}

/** From the message. */
export function portInfo(proto: Port): PortInfo {
  return { port: proto.port, address: proto.address, processId: proto.processId, pid: proto.pid };
}

/** From the message. */
export function serverInfo(proto: GetServerInfoResponse): ServerInfo {
  const { limits } = proto;
  return {
    version: proto.version,
    apiRevision: proto.apiRevision,
    backends: proto.backends.map(backendInfo),
    defaultBackend: BACKENDS.name(proto.defaultBackend),
    limits: {
      maxRequestBytes: Number(limits?.maxRequestBytes ?? 0),
      maxChunkBytes: Number(limits?.maxChunkBytes ?? 0),
      maxRunOutputBytes: Number(limits?.maxRunOutputBytes ?? 0),
      maxJournalBytes: Number(limits?.maxJournalBytes ?? 0),
      maxPageSize: limits?.maxPageSize ?? 0,
    },
    principal: proto.principal,
    scopes: proto.scopes.map((scope) => SCOPES.name(scope)).filter((scope) => scope !== "unspecified"),
    startTime: when(proto.startTime),
    instanceId: proto.instanceId,
    templates: proto.templates,
  };
}

function backendInfo(proto: PbBackendInfo): BackendInfo {
  const capabilities = Object.entries(proto.capabilities ?? {}).filter(([, value]) => value === true);
  return {
    backend: BACKENDS.name(proto.backend),
    available: proto.available,
    unavailableReason: proto.unavailableReason,
    version: proto.version,
    capabilities: new Set(capabilities.map(([name]) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`))),
  };
}
