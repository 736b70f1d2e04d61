/** A workspace: programs, files, ports, and what an agent has there. */

import type { Workspace as WorkspaceMessage } from "./gen/workspaced/v1/workspace_pb.js";
import { LONG_MS, type CallOptions, type Connection } from "./connection.js";
import { InternalError } from "./errors.js";
import { LifecycleService } from "./gen/workspaced/v1/lifecycle_pb.js";
import { duration, workspaceInfo, type WorkspaceInfo } from "./info.js";

/**
 * A handle on a workspace, made by `Client.initialize` or `Client.workspace`. It holds no resource.
 *
 * Every method rejects with `WorkspaceNotFoundError`, `WorkspaceNotReadyError` when it is closed, and
 * `UnreachableError` when its sandbox is gone or does not answer (`Client.initialize` recovers it).
 */
export class Workspace {
  /** Its id. */
  readonly id: string;
  /** @internal */
  readonly connection: Connection;

  /** @internal */
  constructor(connection: Connection, id: string) {
    this.connection = connection;
    this.id = id;
  }

  /** What the server knows of it now. */
  async info(options: CallOptions = {}): Promise<WorkspaceInfo> {
    const response = await this.connection.unary(LifecycleService.method.getWorkspace, { workspaceId: this.id }, options);
    return known(response.workspace);
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
