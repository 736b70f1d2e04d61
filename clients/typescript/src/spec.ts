/** From the options of this library to the specs of the API. Wrong ones throw `TypeError` here. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { randomUUID } from "node:crypto";
import { BACKENDS, type Backend } from "./enums.js";
import { DisconnectPolicy, OverflowPolicy, ProcessSpecSchema, StdinMode } from "./gen/workspaced/v1/process_pb.js";
import {
  DaytonaOptionsSchema,
  DockerOptionsSchema,
  E2bOptionsSchema,
  KubernetesOptionsSchema,
  LocalOptionsSchema,
  Network_Mode,
  OpensandboxOptionsSchema,
  Persistence,
  WorkspaceSpecSchema,
} from "./gen/workspaced/v1/workspace_pb.js";
import type { McpSchema } from "./gen/workspaced/v1/mcp_pb.js";
import { duration } from "./info.js";

/** A command line for `/bin/sh -c`, or a program and its arguments. */
export type Command = string | readonly string[];

/** What a workspace may use; 0 or absent is the backend's default. */
export interface Resources {
  /** CPU time in thousandths of a core. */
  cpuMillis?: number | undefined;
  memoryBytes?: number | undefined;
  diskBytes?: number | undefined;
  /** Greatest number of processes and threads. */
  pids?: number | undefined;
  gpus?: number | undefined;
}

/** What a workspace is to be. */
export interface WorkspaceOptions {
  /** Where it runs; absent: the server's default. */
  backend?: Exclude<Backend, "unspecified"> | undefined;
  /** Container image, or the provider's template. */
  image?: string | undefined;
  /** Name of a template in the server's configuration. */
  template?: string | undefined;
  /** Environment of every process. */
  env?: Readonly<Record<string, string>> | undefined;
  resources?: Resources | undefined;
  /** `"default"`, `"none"`, or the hosts and networks to allow. */
  network?: "default" | "none" | readonly string[] | undefined;
  /** User, or `uid:gid`, that processes run as. */
  user?: string | undefined;
  /** Absolute path of its directory inside. */
  workdir?: string | undefined;
  /** Whether files outlive `close`; absent: as the backend can. */
  persistent?: boolean | undefined;
  /** Close it when it was not used for so long. */
  idleTimeoutMs?: number | undefined;
  /** Install python3 when the image has none. */
  installPython?: boolean | undefined;
  /** Directories on the server with skills that every agent starts with. */
  seedSkills?: readonly string[] | undefined;
  /** MCP servers that every agent and session starts with. */
  defaultMcps?: readonly MessageInitShape<typeof McpSchema>[] | undefined;
  /** Template of the text that `Workspace.instructions` returns. */
  instructions?: string | undefined;
  /** Options of one backend, by their names in the API. */
  local?: MessageInitShape<typeof LocalOptionsSchema> | undefined;
  docker?: MessageInitShape<typeof DockerOptionsSchema> | undefined;
  e2b?: MessageInitShape<typeof E2bOptionsSchema> | undefined;
  daytona?: MessageInitShape<typeof DaytonaOptionsSchema> | undefined;
  kubernetes?: MessageInitShape<typeof KubernetesOptionsSchema> | undefined;
  opensandbox?: MessageInitShape<typeof OpensandboxOptionsSchema> | undefined;
}

/** How a process is to run. */
export interface ProcessOptions {
  /** Its id, unique in the workspace; absent: a new one. */
  processId?: string | undefined;
  /** Working directory, absolute or relative to the workspace's. */
  cwd?: string | undefined;
  /** Environment, added to the workspace's. */
  env?: Readonly<Record<string, string>> | undefined;
  /** User to run as. */
  user?: string | undefined;
  /** Run in a terminal of this size, in characters. */
  pty?: { cols: number; rows: number } | undefined;
  /** After this time its whole tree is ended: reason TIMED_OUT, with the output so far. Not the call's deadline. */
  processTimeoutMs?: number | undefined;
  /** From TERM to KILL then; absent: 5 s. */
  killGraceMs?: number | undefined;
  /** Niceness to add, 0 to 19. */
  nice?: number | undefined;
}

/** What becomes of a process whose last attachment is lost. */
export type DisconnectPolicyName = "keep" | "kill";
/** What happens when a journal is full: the process waits, or the oldest part is dropped. */
export type OverflowPolicyName = "block" | "drop_oldest";

/** What {@link processSpec} takes. */
export interface AllProcessOptions extends ProcessOptions {
  stdin?: boolean | undefined;
  disconnectPolicy?: DisconnectPolicyName | undefined;
  overflowPolicy?: OverflowPolicyName | undefined;
  journalLimitBytes?: number | undefined;
}

const DISCONNECT = { keep: DisconnectPolicy.KEEP, kill: DisconnectPolicy.KILL };
const OVERFLOW = { block: OverflowPolicy.BLOCK, drop_oldest: OverflowPolicy.DROP_OLDEST };
const BACKEND_OPTIONS = ["local", "docker", "e2b", "daytona", "kubernetes", "opensandbox"] as const;

/** An id for a process or a request that nobody else has. */
export function newId(): string {
  return randomUUID().replaceAll("-", "");
}

/** The spec of a workspace; `undefined` when nothing is asked for. */
export function workspaceSpec(options: WorkspaceOptions): MessageInitShape<typeof WorkspaceSpecSchema> | undefined {
  const spec: MessageInitShape<typeof WorkspaceSpecSchema> = {};
  const given = BACKEND_OPTIONS.filter((name) => options[name] !== undefined);
  const [chosen] = given;
  if (given.length > 1) {
    throw new TypeError(`options of one backend, not of ${given.join(", ")}`);
  }
  if (options.backend !== undefined) {
    spec.backend = BACKENDS.number(options.backend);
  }
  if (chosen !== undefined) {
    if (options.backend !== undefined && options.backend !== chosen) {
      throw new TypeError(`options of ${chosen} with backend ${options.backend}`);
    }
    spec.backend = BACKENDS.number(chosen);
    spec.backendOptions = { case: chosen, value: options[chosen] } as NonNullable<typeof spec.backendOptions>;
  }
  if (options.image) spec.image = options.image;
  if (options.template) spec.template = options.template;
  if (options.env !== undefined) spec.env = { ...options.env };
  if (options.user) spec.user = options.user;
  if (options.workdir) spec.workdir = options.workdir;
  if (options.instructions) spec.instructions = options.instructions;
  if (options.installPython === true) spec.installPython = true;
  if (options.seedSkills !== undefined) spec.seedSkills = [...options.seedSkills];
  if (options.defaultMcps !== undefined) spec.defaultMcps = [...options.defaultMcps];
  if (options.idleTimeoutMs !== undefined) spec.idleTimeout = duration(options.idleTimeoutMs);
  if (options.persistent !== undefined) {
    spec.persistence = options.persistent ? Persistence.PERSISTENT : Persistence.EPHEMERAL;
  }
  if (options.resources !== undefined) {
    const { cpuMillis, memoryBytes, diskBytes, pids, gpus } = options.resources;
    spec.resources = {
      cpuMillis: cpuMillis ?? 0,
      memoryBytes: BigInt(memoryBytes ?? 0),
      diskBytes: BigInt(diskBytes ?? 0),
      pids: pids ?? 0,
      gpus: gpus ?? 0,
    };
  }
  const { network } = options;
  if (network === "none") {
    spec.network = { mode: Network_Mode.NONE };
  } else if (Array.isArray(network)) {
    spec.network = { mode: Network_Mode.ALLOW_LIST, allow: [...(network as readonly string[])] };
  } else if (network !== undefined && network !== "default") {
    throw new TypeError(`network is "default", "none" or a list of hosts, not ${JSON.stringify(network)}`);
  }
  return Object.keys(spec).length === 0 ? undefined : spec;
}

/** The spec of a process. */
export function processSpec(command: Command, options: AllProcessOptions): MessageInitShape<typeof ProcessSpecSchema> {
  const spec: MessageInitShape<typeof ProcessSpecSchema> = {
    command:
      typeof command === "string"
        ? { case: "shellCommand", value: command }
        : { case: "argv", value: { args: [...command] } },
    cwd: options.cwd ?? "",
    env: { ...options.env },
    user: options.user ?? "",
    stdin: options.stdin === true ? StdinMode.OPEN : StdinMode.CLOSED,
    disconnectPolicy: policy("disconnectPolicy", DISCONNECT, options.disconnectPolicy),
    overflowPolicy: policy("overflowPolicy", OVERFLOW, options.overflowPolicy),
    journalLimitBytes: BigInt(options.journalLimitBytes ?? 0),
    nice: options.nice ?? 0,
  };
  if (options.pty !== undefined) spec.pty = { cols: options.pty.cols, rows: options.pty.rows };
  if (options.processTimeoutMs !== undefined) spec.timeout = duration(options.processTimeoutMs);
  if (options.killGraceMs !== undefined) spec.killGrace = duration(options.killGraceMs);
  return spec;
}

function policy(name: string, values: Readonly<Record<string, number>>, value: string | undefined): number {
  if (value === undefined) {
    return 0;
  }
  const number = Object.hasOwn(values, value) ? values[value] : undefined;
  if (number === undefined) {
    throw new TypeError(`${name} is ${Object.keys(values).join(" or ")}, not ${JSON.stringify(value)}`);
  }
  return number;
}
