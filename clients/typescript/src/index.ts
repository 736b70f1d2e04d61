/**
 * Agent workspaces over gRPC: isolated, persistent places with files, tools and running processes.
 *
 * ```ts
 * await using client = connect({ address: "127.0.0.1:7420" });
 * const ws = await client.initialize({ backend: "docker", image: "python:3.12" });
 * const result = await ws.run("python --version", { check: true });
 * ```
 *
 * @packageDocumentation
 */

export * from "./errors.js";
export { Client, connect } from "./client.js";
export type { ConnectOptions, InitializeOptions, WorkspaceFilter } from "./client.js";
export type { CallOptions, Token } from "./connection.js";
export type {
  AllocationPolicy, Backend, ChangeKind, ExitReason, FileType, Phase, ProcessState, Scope, WorkspaceState,
} from "./enums.js";
export type { BackendInfo, Limits, PortInfo, Progress, ServerInfo, WorkspaceInfo } from "./info.js";
export { MessageStream } from "./message-stream.js";
export type { Command, DisconnectPolicyName, OverflowPolicyName, ProcessOptions, Resources, WorkspaceOptions } from "./spec.js";
export type { TlsOptions } from "./target.js";
export { Workspace } from "./workspace.js";
