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
export { apiRevision } from "./api-revision.js";
export { Client, connect } from "./client.js";
export type { ConnectOptions, InitializeOptions, WorkspaceFilter } from "./client.js";
export type { CallOptions, Token } from "./connection.js";
export type {
  Block, DataBlock, HintBlock, Message, MessageInput, Role, TextBlock, ThinkingBlock, ToolCallBlock, ToolResultBlock,
  ToolResultState, UnknownBlock,
} from "./content.js";
export type {
  AllocationPolicy, Backend, ChangeKind, ExitReason, FileType, Phase, ProcessState, Scope, WorkspaceState,
} from "./enums.js";
export type { FileChange, FileInfo, WatchEvent, WatchOverflow, WatchReady } from "./file-info.js";
export { Files } from "./files.js";
export type { ListOptions, ReadOptions, UploadOptions, WriteOptions } from "./files.js";
export type { BackendInfo, Limits, PortInfo, Progress, ServerInfo, WorkspaceInfo } from "./info.js";
export type { JsonObject, JsonValue } from "./json.js";
export { LeasedWorkspace } from "./lease.js";
export type { AcquireOptions } from "./lease.js";
export type { McpError, McpInfo, McpPrompt, McpResource, McpState, ResourceContent } from "./mcp-info.js";
export { Mcps } from "./mcps.js";
export type { McpDeclaration, McpHttp, McpStdio } from "./mcps.js";
export { Forward, TunnelAgent } from "./forward.js";
export { MessageStream } from "./message-stream.js";
export { Offload } from "./offload.js";
export type { OffloadInfo, OffloadKind, ReadOffloadOptions } from "./offload.js";
export { Skills } from "./skills.js";
export type { AddSkillOptions, SkillDetail, SkillFile, SkillInfo, SkillProblem, SkillSource, Whose } from "./skills.js";
export type { Data } from "./source.js";
export type { Command, DisconnectPolicyName, OverflowPolicyName, ProcessOptions, Resources, WorkspaceOptions } from "./spec.js";
export { Process } from "./process.js";
export type { Exit, Gap, Output, ProcessEvent, ProcessInfo, ResourceUsage } from "./process-info.js";
export { Result } from "./result.js";
export type { TlsOptions } from "./target.js";
export { toolResultBlock, Tools } from "./tools.js";
export type {
  CallToolOptions, ToolEvent, ToolInfo, ToolKind, ToolList, ToolLogLevelName, ToolResult,
} from "./tools.js";
export type { Tree, TreeOptions } from "./tree.js";
export type { Transferred } from "./upload.js";
export type { Who } from "./who.js";
export { Tunnel } from "./tunnel.js";
export { Workspace } from "./workspace.js";
export type { AttachOptions, ExecOptions, ForwardOptions, RunOptions } from "./workspace.js";
