/** The enumerations of the API as strings. */

import { FileType as PbFileType, FileChange_Kind } from "./gen/workspaced/v1/file_pb.js";
import { AllocationPolicy as PbPolicy } from "./gen/workspaced/v1/lifecycle_pb.js";
import { Scope as PbScope } from "./gen/workspaced/v1/options_pb.js";
import { ExitReason as PbExitReason, ProcessState as PbProcessState } from "./gen/workspaced/v1/process_pb.js";
import { Backend as PbBackend, Progress_Phase, WorkspaceState as PbState } from "./gen/workspaced/v1/workspace_pb.js";

/** Where a workspace runs. `unspecified` is the server's default, and a backend that this version does not know. */
export type Backend = "unspecified" | "local" | "docker" | "e2b" | "daytona" | "kubernetes" | "opensandbox";

/** Where a workspace is in its life. */
export type WorkspaceState =
  | "UNSPECIFIED" | "INITIALIZING" | "READY" | "CLOSING" | "CLOSED" | "DEGRADED" | "DELETING" | "DELETED" | "FAILED";

/** What is being done while a workspace is INITIALIZING. */
export type Phase =
  | "UNSPECIFIED" | "QUEUED" | "PULLING_IMAGE" | "CREATING" | "STARTING" | "CONNECTING" | "INSTALLING_PYTHON";

/** Who shares a workspace that is acquired. */
export type AllocationPolicy = "per_user" | "per_agent" | "per_session";

/** Why a process ended. */
export type ExitReason =
  | "UNSPECIFIED" | "EXITED" | "SIGNALED" | "TIMED_OUT" | "OOM_KILLED" | "CANCELLED" | "WORKSPACE_STOPPED" | "LOST";

/** Whether a process runs. */
export type ProcessState = "UNSPECIFIED" | "RUNNING" | "EXITED";

/** What a file is. */
export type FileType = "UNSPECIFIED" | "FILE" | "DIRECTORY" | "SYMLINK" | "OTHER";

/** What happened to a file. */
export type ChangeKind = "UNSPECIFIED" | "CREATED" | "MODIFIED" | "DELETED" | "MOVED";

/** What a token allows. */
export type Scope = "unspecified" | "read" | "execute" | "manage" | "admin";

type ProtoEnum = Readonly<Record<string, string | number>>;

/** Translates one enumeration between its numbers and its strings. */
export class EnumTable<T extends string> {
  readonly #names: ProtoEnum;
  readonly #title: string;
  readonly #lower: boolean;

  constructor(names: ProtoEnum, title: string, lower = false) {
    this.#names = names;
    this.#title = title;
    this.#lower = lower;
  }

  /** The string; unspecified for a number of a newer server. */
  name(number: number): T {
    const found = this.#names[number];
    const name = typeof found === "string" ? found : "UNSPECIFIED";
    return (this.#lower ? name.toLowerCase() : name) as T;
  }

  /** The number of a name in any case. Throws `TypeError` with the names that exist. */
  number(value: string): number {
    const name = value.toUpperCase();
    const number = Object.hasOwn(this.#names, name) ? this.#names[name] : undefined;
    if (typeof number !== "number") {
      const known = Object.keys(this.#names).filter((key) => !/^\d+$/.test(key) && key !== "UNSPECIFIED");
      throw new TypeError(`${JSON.stringify(value)} is no ${this.#title}: ${known.join(", ").toLowerCase()}`);
    }
    return number;
  }
}

export const ALLOCATION_POLICIES = new EnumTable<AllocationPolicy>(PbPolicy, "allocation policy", true);
export const BACKENDS = new EnumTable<Backend>(PbBackend, "backend", true);
export const WORKSPACE_STATES = new EnumTable<WorkspaceState>(PbState, "workspace state");
export const PHASES = new EnumTable<Phase>(Progress_Phase, "phase");
export const EXIT_REASONS = new EnumTable<ExitReason>(PbExitReason, "exit reason");
export const PROCESS_STATES = new EnumTable<ProcessState>(PbProcessState, "process state");
export const FILE_TYPES = new EnumTable<FileType>(PbFileType, "file type");
export const CHANGE_KINDS = new EnumTable<ChangeKind>(FileChange_Kind, "kind of change");
export const SCOPES = new EnumTable<Scope>(PbScope, "scope", true);
