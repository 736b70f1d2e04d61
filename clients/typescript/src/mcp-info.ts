/** What is known of MCP servers, and what they offer. */

import { McpState as PbState } from "./gen/workspaced/v1/mcp_pb.js";
import type {
  Mcp, McpError as PbError, McpPrompt as PbPrompt, McpResource as PbResource, McpResourceContent, McpStatus,
} from "./gen/workspaced/v1/mcp_pb.js";
import { when } from "./info.js";

/** What the instance of an MCP server is doing; `idle` was not needed yet, or was put aside. */
export type McpState = "idle" | "connecting" | "ready" | "failed";

/** Why an MCP server cannot be used. */
export interface McpError {
  /** Its name. */
  readonly mcp: string;
  /** For example `MCP_START_FAILED`. */
  readonly reason: string;
  readonly message: string;
  /** The end of what a program wrote to standard error; may be empty. */
  readonly stderrTail: string;
  /** How many attempts in a row have failed. */
  readonly attempts: number;
  readonly time: Date | undefined;
}

/** A declared MCP server and its instance. */
export interface McpInfo {
  readonly name: string;
  readonly state: McpState;
  /** Set when it failed. */
  readonly error: McpError | undefined;
  /** It is a default of the workspace. */
  readonly inherited: boolean;
  /** The name and version that it gave for itself, and its instructions for a model; empty before it was started. */
  readonly serverName: string;
  readonly serverVersion: string;
  readonly instructions: string;
  readonly toolCount: number;
  readonly hasResources: boolean;
  readonly hasPrompts: boolean;
  /** The process of one that runs in the workspace; else empty. */
  readonly processId: string;
  readonly lastUsedTime: Date | undefined;
  /** When a failed one is tried again. */
  readonly nextRetryTime: Date | undefined;
  /** The declaration as the API has it, secrets redacted. */
  readonly spec: Mcp | undefined;
}

/** A resource of an MCP server, or with `uriTemplate` a family of them. */
export interface McpResource {
  readonly mcp: string;
  /** Empty for a family. */
  readonly uri: string;
  /** An RFC 6570 template; empty for a single resource. */
  readonly uriTemplate: string;
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly mediaType: string;
  /** In bytes, when the server says it. */
  readonly size: number | undefined;
}

/** A part of a resource: `text` or `data`, or `path` when it was stored in the workspace. */
export interface ResourceContent {
  readonly uri: string;
  readonly mediaType: string;
  readonly text: string | undefined;
  readonly data: Uint8Array | undefined;
  readonly path: string | undefined;
}

/** A prompt of an MCP server. */
export interface McpPrompt {
  readonly mcp: string;
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly arguments: readonly { readonly name: string; readonly description: string; readonly required: boolean }[];
}

const STATES: Readonly<Record<number, McpState>> = {
  [PbState.IDLE]: "idle",
  [PbState.CONNECTING]: "connecting",
  [PbState.READY]: "ready",
  [PbState.FAILED]: "failed",
};

/** From the message. */
export function mcpError(proto: PbError): McpError {
  const { mcp, reason, message, stderrTail, attempts } = proto;
  return { mcp, reason, message, stderrTail, attempts, time: when(proto.time) };
}

/** From the message. */
export function mcpInfo(proto: McpStatus | undefined): McpInfo {
  return {
    name: proto?.mcp?.name ?? "",
    state: STATES[proto?.state ?? 0] ?? "idle",
    error: proto?.error && mcpError(proto.error),
    inherited: proto?.inherited ?? false,
    serverName: proto?.serverName ?? "",
    serverVersion: proto?.serverVersion ?? "",
    instructions: proto?.instructions ?? "",
    toolCount: proto?.toolCount ?? 0,
    hasResources: proto?.hasResources ?? false,
    hasPrompts: proto?.hasPrompts ?? false,
    processId: proto?.processId ?? "",
    lastUsedTime: when(proto?.lastUsedTime),
    nextRetryTime: when(proto?.nextRetryTime),
    spec: proto?.mcp,
  };
}

/** From the message. */
export function mcpResource(proto: PbResource): McpResource {
  const { mcp, address, name, title, description, mediaType, sizeBytes } = proto;
  return {
    mcp, name, title, description, mediaType,
    uri: address.case === "uri" ? address.value : "",
    uriTemplate: address.case === "uriTemplate" ? address.value : "",
    size: sizeBytes === undefined ? undefined : Number(sizeBytes),
  };
}

/** From the message. */
export function resourceContent({ uri, mediaType, content }: McpResourceContent): ResourceContent {
  return {
    uri,
    mediaType,
    text: content.case === "text" ? content.value : undefined,
    data: content.case === "data" ? content.value : undefined,
    path: content.case === "offloaded" ? content.value.path : undefined,
  };
}

/** From the message. */
export function mcpPrompt(proto: PbPrompt): McpPrompt {
  const { mcp, name, title, description } = proto;
  const taken = proto.arguments.map(({ name, description, required }) => ({ name, description, required }));
  return { mcp, name, title, description, arguments: taken };
}
