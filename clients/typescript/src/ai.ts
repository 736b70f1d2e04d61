/**
 * The tools of a workspace for the AI SDK (the package `ai`, version 6).
 *
 * ```ts
 * import { generateText, stepCountIs } from "ai";
 * import { workspaceTools } from "@workspaced/client/ai";
 *
 * const who = { agentId: "coder", sessionId: "s1" };
 * const { text } = await generateText({
 *   model,
 *   system: await ws.instructions(who),
 *   tools: await workspaceTools(ws, who),
 *   stopWhen: stepCountIs(20),
 *   prompt: "Which Python is installed?",
 * });
 * ```
 *
 * @module ai
 */

import { dynamicTool, jsonSchema, type Tool, type ToolSet } from "ai";
import type { CallOptions } from "./connection.js";
import type { Block } from "./content.js";
import type { JsonObject } from "./json.js";
import type { McpError } from "./mcp-info.js";
import type { ToolEvent, ToolInfo, ToolKind, ToolResult } from "./tools.js";
import type { Who } from "./who.js";
import type { Workspace } from "./workspace.js";

/** Which tools, and how they are called. */
export interface WorkspaceToolsOptions extends Who, CallOptions {
  /** Only the built-in ones, or only those of MCP servers. */
  kind?: ToolKind | undefined;
  /** Only those of this MCP server. */
  mcp?: string | undefined;
  /** Stops each tool after so many milliseconds; what it gave by then is its result. */
  toolTimeoutMs?: number | undefined;
  /** Text beyond so many bytes is stored in the workspace, and the model is told where; absent: never. */
  offloadOverBytes?: number | undefined;
  /** Told of what happens in each call, for display. */
  onEvent?: ((event: ToolEvent, toolName: string, toolCallId: string) => void) | undefined;
  /** Told of each MCP server whose tools are missing. */
  onMcpError?: ((error: McpError) => void) | undefined;
}

/** What a tool gave, as JSON: what is kept in messages and shown by user interfaces. */
export interface WorkspaceToolOutput {
  readonly text: string;
  readonly isError: boolean;
  readonly state: ToolResult["state"];
  /** Its output as an object, from tools with an output schema. */
  readonly structured?: JsonObject;
  /** The path of the whole text, when it was stored. */
  readonly offloaded?: string;
  /** The process that goes on in the background. */
  readonly backgroundProcessId?: string;
  /** The output in order: text, and data in base64 or by its URL. */
  readonly content: readonly WorkspaceToolContent[];
}

/** One piece of a tool's output. */
export type WorkspaceToolContent =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "data"; readonly mediaType: string; readonly data: string; readonly name?: string }
  | { readonly type: "url"; readonly mediaType: string; readonly url: string; readonly name?: string };

type ModelOutput = Awaited<ReturnType<NonNullable<Tool["toModelOutput"]>>>;
type ModelContent = Extract<ModelOutput, { type: "content" }>["value"][number];

/** The rule of the API for the id of a call. */
const CALL_ID = /^(?!\.)[^/\\\p{Cc}]{1,50}$/u;

/**
 * The tools that an agent has in a session, as they are now. Each call goes to the workspace; the AI SDK's abort signal
 * stops the tool. A tool that reports an error gives its text to the model as an error; one that could not be called
 * throws, which the AI SDK tells the model too.
 *
 * `signal` and `timeoutMs` are those of the listing.
 */
export async function workspaceTools(ws: Workspace, options: WorkspaceToolsOptions = {}): Promise<ToolSet> {
  const { agentId, sessionId, kind, mcp, signal, timeoutMs, onMcpError } = options;
  const { tools, mcpErrors } = await ws.tools.list({ agentId, sessionId, kind, mcp, signal, timeoutMs });
  for (const error of mcpErrors) {
    onMcpError?.(error);
  }
  return Object.fromEntries(tools.map((tool) => [tool.name, asTool(ws, tool, options)]));
}

function asTool(ws: Workspace, tool: ToolInfo, options: WorkspaceToolsOptions): Tool {
  const { agentId, sessionId, toolTimeoutMs, offloadOverBytes, onEvent } = options;
  return dynamicTool({
    description: tool.description,
    ...(tool.title !== "" && { title: tool.title }),
    inputSchema: jsonSchema(tool.inputSchema),
    async execute(input, { toolCallId, abortSignal }): Promise<WorkspaceToolOutput> {
      const result = await ws.tools.call(tool.name, (input ?? {}) as Record<string, unknown>, {
        agentId,
        sessionId,
        toolTimeoutMs,
        offloadOverBytes,
        callId: CALL_ID.test(toolCallId) ? toolCallId : undefined,
        signal: abortSignal,
        onEvent: onEvent && ((event) => onEvent(event, tool.name, toolCallId)),
      });
      return toolOutput(result);
    },
    toModelOutput: ({ output }) => modelOutput(output as WorkspaceToolOutput),
  });
}

/** A result as JSON. Blocks that are no part of an output are left out. */
function toolOutput(result: ToolResult): WorkspaceToolOutput {
  const { text, isError, state, structured, offloaded, backgroundProcessId } = result;
  return {
    text,
    isError,
    state,
    ...(structured !== undefined && { structured }),
    ...(offloaded !== "" && { offloaded }),
    ...(backgroundProcessId !== "" && { backgroundProcessId }),
    content: result.blocks.flatMap(contentOf),
  };
}

function contentOf(block: Block): WorkspaceToolContent[] {
  if (block.type === "text") {
    return [{ type: "text", text: block.text }];
  }
  if (block.type !== "data") {
    return [];
  }
  const { mediaType, data, url = "" } = block;
  const name = block.name !== undefined && { name: block.name };
  return data === undefined
    ? [{ type: "url", mediaType, url, ...name }]
    : [{ type: "data", mediaType, data: Buffer.from(data).toString("base64"), ...name }];
}

/** A result as a model gets it: text, an error, or text with images and files. */
function modelOutput({ text, isError, structured, content }: WorkspaceToolOutput): ModelOutput {
  if (isError) {
    return { type: "error-text", value: text };
  }
  if (content.every(({ type }) => type === "text")) {
    const value = text === "" && structured !== undefined ? JSON.stringify(structured) : text;
    return { type: "text", value };
  }
  return { type: "content", value: content.map(modelContent) };
}

function modelContent(content: WorkspaceToolContent): ModelContent {
  if (content.type === "text") {
    return content;
  }
  const { mediaType, name } = content;
  const image = mediaType.startsWith("image/");
  if (content.type === "data") {
    const { data } = content;
    return image
      ? { type: "image-data", data, mediaType }
      : { type: "file-data", data, mediaType, ...(name !== undefined && { filename: name }) };
  }
  const { url } = content;
  if (/^https?:/.test(url)) {
    return { type: image ? "image-url" : "file-url", url };
  }
  // No model can fetch what lies in the workspace; its tools can read it.
  return { type: "text", text: `[${mediaType}: ${url}]` };
}
