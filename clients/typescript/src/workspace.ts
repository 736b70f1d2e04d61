/** A workspace: programs, files, ports, and what an agent has there. */

import type { AgentOptions } from "node:http";
import type { Workspace as WorkspaceMessage } from "./gen/workspaced/v1/workspace_pb.js";
import { LONG_MS, type CallOptions, type Connection } from "./connection.js";
import { PROCESS_STATES } from "./enums.js";
import { InternalError } from "./errors.js";
import { Files } from "./files.js";
import { Forward, TunnelAgent } from "./forward.js";
import { DiscoveryService } from "./gen/workspaced/v1/discovery_pb.js";
import { ExecutionService } from "./gen/workspaced/v1/execution_pb.js";
import { LifecycleService } from "./gen/workspaced/v1/lifecycle_pb.js";
import { ManagementService } from "./gen/workspaced/v1/management_pb.js";
import { PortService } from "./gen/workspaced/v1/port_pb.js";
import { duration, portInfo, workspaceInfo, type PortInfo, type WorkspaceInfo } from "./info.js";
import { Mcps } from "./mcps.js";
import { Offload } from "./offload.js";
import { processInfo, type ProcessInfo } from "./process-info.js";
import { Process } from "./process.js";
import { runProcess, type Result } from "./result.js";
import { Skills } from "./skills.js";
import { newId, processSpec, type Command, type DisconnectPolicyName, type OverflowPolicyName, type ProcessOptions } from "./spec.js";
import { Tools } from "./tools.js";
import { Tunnel } from "./tunnel.js";
import { who, type Who } from "./who.js";

const MAX_OUTPUT_BYTES = 10 << 20;

/** What {@link Workspace.run} takes. */
export interface RunOptions extends ProcessOptions, CallOptions {
  /** Standard input, closed after it. */
  stdin?: Uint8Array | string | undefined;
  /** Reject unless it exits with 0. */
  check?: boolean | undefined;
  /** How much of each stream is returned (10 MiB). */
  maxOutputBytes?: number | undefined;
  /** What becomes of it when the call ends early; absent: `"kill"`. */
  disconnectPolicy?: DisconnectPolicyName | undefined;
}

/** What {@link Workspace.exec} takes. */
export interface ExecOptions extends ProcessOptions, CallOptions {
  /** Whether standard input can be written; with a pty it can always. */
  stdin?: boolean | undefined;
  /** What becomes of it when nothing is attached; absent: `"keep"`. */
  disconnectPolicy?: DisconnectPolicyName | undefined;
  /** What happens when the journal is full; absent: `"block"`. */
  overflowPolicy?: OverflowPolicyName | undefined;
  /** Greatest size of the journal, 64 KiB to 16 GiB (256 MiB). */
  journalLimitBytes?: number | undefined;
  /** What iteration does for output that is no longer kept; absent: `"throw"`. */
  gaps?: "throw" | "yield" | undefined;
}

/** What {@link Workspace.attach} takes. */
export interface AttachOptions extends CallOptions {
  /** Offset of the first byte of output (0). */
  offset?: number | undefined;
  /** What iteration does for output that is no longer kept; absent: `"throw"`. */
  gaps?: "throw" | "yield" | undefined;
  /** Attach for reading only. */
  readOnly?: boolean | undefined;
}

/** What {@link Workspace.forward} takes. */
export interface ForwardOptions {
  /** Host as seen from inside (127.0.0.1). */
  host?: string | undefined;
  localPort?: number | undefined;
  /** Address to listen on (127.0.0.1). */
  localHost?: string | undefined;
}

/**
 * A handle on a workspace, made by `Client.initialize` or `Client.workspace`. It holds no resource.
 *
 * Every method rejects with `WorkspaceNotFoundError`, `WorkspaceNotReadyError` when it is closed, and
 * `UnreachableError` when its sandbox is gone or does not answer (`Client.initialize` recovers it).
 */
export class Workspace {
  /** Its id. */
  readonly id: string;
  readonly files: Files;
  readonly tools: Tools;
  readonly mcps: Mcps;
  readonly skills: Skills;
  readonly offload: Offload;
  /** @internal */
  readonly connection: Connection;

  /** @internal */
  constructor(connection: Connection, id: string) {
    this.connection = connection;
    this.id = id;
    this.files = new Files(connection, id);
    this.tools = new Tools(connection, id);
    this.mcps = new Mcps(connection, id);
    this.skills = new Skills(connection, id);
    this.offload = new Offload(connection, id);
  }

  /**
   * Run a command to its end. A string is a command line for `/bin/sh -c`, an array a program and its arguments.
   *
   * `processTimeoutMs` ends the whole process tree (reason TIMED_OUT, with the output so far). Of each stream the first
   * `maxOutputBytes` are returned. `check` rejects with `CommandFailedError` unless it exits with 0. Rejects with
   * `ProcessStartFailedError` when it cannot be started. When the connection breaks the same call is made again: nothing
   * runs twice, and the command goes on, unless the connection is away for more than 10 s and `disconnectPolicy` is not
   * `"keep"`. An abort and `timeoutMs` end the tree: TERM at once, KILL 10 s later.
   */
  async run(command: Command, options: RunOptions = {}): Promise<Result> {
    const { stdin } = options;
    const result = await runProcess(
      this.connection,
      {
        workspaceId: this.id,
        processId: options.processId ?? newId(),
        spec: processSpec(command, { ...options, stdin: false }),
        stdin: typeof stdin === "string" ? new TextEncoder().encode(stdin) : (stdin ?? new Uint8Array()),
        maxOutputBytes: options.maxOutputBytes ?? MAX_OUTPUT_BYTES,
      },
      options,
    );
    return options.check === true ? result.check() : result;
  }

  /**
   * Start a process and attach to it. Resolves when it runs.
   *
   * ```ts
   * await using process = await ws.exec(["bash"], { stdin: true });
   * await process.write("echo hello\n");
   * await process.closeStdin();
   * for await (const { stream, data } of process) { ... }
   * const exit = await process.wait();
   * ```
   *
   * Rejects with `ProcessStartFailedError`, or `ProcessExistsError` for an id that runs something else; the same id with
   * the same command attaches to what there is. `timeoutMs` bounds the start alone. An abort of `signal` detaches, also
   * later.
   */
  exec(command: Command, options: ExecOptions = {}): Promise<Process> {
    const { gaps, processId = newId() } = options;
    const start = processSpec(command, options);
    return new Process(this.connection, this.id, processId, { start, gaps }).open(options);
  }

  /**
   * Start a process in the background, and resolve as soon as it runs. It goes on without this program.
   *
   * Nothing is attached until the handle is iterated over or written to. Idempotent by `processId`. A full journal drops
   * its oldest part unless `overflowPolicy` is `"block"`.
   */
  async start(command: Command, options: Omit<ExecOptions, "disconnectPolicy"> = {}): Promise<Process> {
    const { gaps, processId = newId(), signal, timeoutMs } = options;
    const spec = processSpec(command, { ...options, disconnectPolicy: undefined });
    await this.connection.unary(ExecutionService.method.startProcess, { workspaceId: this.id, processId, spec }, { signal, timeoutMs });
    return new Process(this.connection, this.id, processId, { gaps });
  }

  /**
   * Attach to a process from an offset of its journal. `readOnly` needs no more than the scope READ.
   *
   * Rejects with `ProcessNotFoundError`, and `OutOfRangeError` for an offset beyond the end. `timeoutMs` bounds the
   * attaching alone; an abort of `signal` detaches, also later.
   */
  attach(processId: string, options: AttachOptions = {}): Promise<Process> {
    return new Process(this.connection, this.id, processId, options).open(options);
  }

  /** A handle on a process, without asking the server. It attaches when it is iterated over or written to. */
  process(processId: string): Process {
    return new Process(this.connection, this.id, processId);
  }

  /** Processes by start time: all that are kept, or those in one state. */
  async processes(options: { state?: "running" | "exited" | undefined } & CallOptions = {}): Promise<ProcessInfo[]> {
    const { signal, timeoutMs } = options;
    const state = options.state === undefined ? 0 : PROCESS_STATES.number(options.state);
    const found: ProcessInfo[] = [];
    let pageToken = "";
    do {
      const request = { workspaceId: this.id, pageSize: 100, pageToken, state };
      const response = await this.connection.unary(ExecutionService.method.listProcesses, request, { signal, timeoutMs });
      found.push(...response.processes.map(processInfo));
      pageToken = response.nextPageToken;
    } while (pageToken !== "");
    return found;
  }

  /** The TCP ports that listen inside, by number. */
  async listPorts(options: CallOptions = {}): Promise<PortInfo[]> {
    const found: PortInfo[] = [];
    let pageToken = "";
    do {
      const request = { workspaceId: this.id, pageSize: 1000, pageToken };
      const response = await this.connection.unary(PortService.method.listPorts, request, options);
      found.push(...response.ports.map(portInfo));
      pageToken = response.nextPageToken;
    } while (pageToken !== "");
    return found;
  }

  /**
   * A byte stream to a port inside; `host` is as seen from inside (127.0.0.1). Rejects with `PortRefusedError` when
   * nothing listens. `timeoutMs` bounds the connecting alone; an abort of `signal` closes the tunnel, also later.
   */
  tunnel(port: number, options: { host?: string | undefined } & CallOptions = {}): Promise<Tunnel> {
    return Tunnel.open(this.connection, { workspaceId: this.id, port, host: options.host ?? "" }, options);
  }

  /**
   * A local port that leads to a port inside, until it is closed; `localPort` 0 or absent is a free one. Rejects with
   * what Node gives when the local port is taken.
   */
  forward(port: number, options: ForwardOptions = {}): Promise<Forward> {
    const { host, localPort = 0, localHost = "127.0.0.1" } = options;
    return Forward.listen((signal) => this.tunnel(port, { host, signal }), localPort, localHost);
  }

  /** An agent for `http.request` whose requests go to a port inside, whatever their host. */
  httpAgent(port: number, options: { host?: string | undefined } & AgentOptions = {}): TunnelAgent {
    const { host, ...agent } = options;
    return new TunnelAgent(() => this.tunnel(port, { host }), agent);
  }

  /** What the server knows of it now. */
  async info(options: CallOptions = {}): Promise<WorkspaceInfo> {
    const response = await this.connection.unary(LifecycleService.method.getWorkspace, { workspaceId: this.id }, options);
    return known(response.workspace);
  }

  /** The text for an agent's system prompt: where it is, what it has, how to use it. Starts the MCP servers that it
   * tells of: half an hour unless `timeoutMs` is given. */
  async instructions(options: Who & CallOptions = {}): Promise<string> {
    const request = { workspaceId: this.id, ...who(options) };
    return (await this.connection.unary(DiscoveryService.method.getInstructions, request, long(options))).instructions;
  }

  /** Remove what a session of an agent leaves behind: its MCP servers, contexts and tool results. Idempotent. */
  async purgeSession(sessionId: string, options: Pick<Who, "agentId"> & CallOptions = {}): Promise<void> {
    const { agentId, signal, timeoutMs } = options;
    const request = { workspaceId: this.id, ...who({ agentId, sessionId }) };
    await this.connection.unary(ManagementService.method.purgeSession, request, { signal, timeoutMs, repeatable: true });
  }

  /** Remove what an agent leaves behind: its skills, and the MCP servers of all its sessions. Idempotent. */
  async purgeAgent(options: Pick<Who, "agentId"> & CallOptions = {}): Promise<void> {
    const { agentId, signal, timeoutMs } = options;
    const request = { workspaceId: this.id, ...who({ agentId }) };
    await this.connection.unary(ManagementService.method.purgeAgent, request, { signal, timeoutMs, repeatable: true });
  }

  /**
   * End its processes and suspend it as its backend does; `Client.initialize` resumes it. Idempotent.
   * `graceMs` is the time from TERM to KILL for its processes (5,000).
   */
  async close(options: { graceMs?: number | undefined } & CallOptions = {}): Promise<WorkspaceInfo> {
    const response = await this.connection.unary(
      LifecycleService.method.closeWorkspace,
      { workspaceId: this.id, ...(options.graceMs === undefined ? {} : { grace: duration(options.graceMs) }) },
      long(options),
    );
    return known(response.workspace);
  }

  /** Remove MCP declarations, skills, sessions and data; with `wipeFiles` also all files. Idempotent. */
  async reset(
    options: { wipeFiles?: boolean | undefined; killProcesses?: boolean | undefined } & CallOptions = {},
  ): Promise<WorkspaceInfo> {
    const response = await this.connection.unary(
      LifecycleService.method.resetWorkspace,
      {
        workspaceId: this.id,
        wipeFiles: options.wipeFiles ?? false,
        killProcesses: options.killProcesses ?? false,
      },
      long(options),
    );
    return known(response.workspace);
  }

  /** Delete it, its sandbox and its files. Idempotent with `allowMissing`, and only then repeated. */
  async delete(options: { allowMissing?: boolean | undefined } & CallOptions = {}): Promise<void> {
    const allowMissing = options.allowMissing ?? false;
    await this.connection.unary(
      LifecycleService.method.deleteWorkspace,
      { workspaceId: this.id, allowMissing },
      { ...long(options), repeatable: allowMissing },
    );
  }
}

function long(options: CallOptions): CallOptions {
  return { signal: options.signal, timeoutMs: options.timeoutMs ?? LONG_MS };
}

function known(workspace: WorkspaceMessage | undefined): WorkspaceInfo {
  if (workspace === undefined) {
    throw new InternalError("the answer has no workspace");
  }
  return workspaceInfo(workspace);
}
