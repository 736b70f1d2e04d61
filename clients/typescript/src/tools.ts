/** The tools of a workspace: its own, and those of its MCP servers. */

import { toJson } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import type { CallOptions, Connection } from "./connection.js";
import { blockFromProto, dataFromProto, stateFromProto } from "./content.js";
import type { Block, DataBlock, ToolResultBlock, ToolResultState } from "./content.js";
import { InternalError } from "./errors.js";
import { DiscoveryService } from "./gen/workspaced/v1/discovery_pb.js";
import { ExecutionService } from "./gen/workspaced/v1/execution_pb.js";
import {
  ToolKind as PbKind, ToolLogLevel, type CallToolResponse, type Tool, type ToolResult as PbResult,
} from "./gen/workspaced/v1/tool_pb.js";
import { generatedStream } from "./generated-stream.js";
import { jsonObject, type JsonObject, type JsonValue } from "./json.js";
import { mcpError, type McpError } from "./mcp-info.js";
import type { MessageStream } from "./message-stream.js";
import { pages } from "./paging.js";
import { unsigned } from "./unsigned.js";
import { optionalDuration, who, type Who } from "./who.js";

/** Where a tool comes from: workspaced itself, or an MCP server. */
export type ToolKind = "builtin" | "mcp";

/** A tool, described so that it can be handed to a model: `name`, `description`, `inputSchema`. */
export interface ToolInfo {
  /** The name to call it by. */
  readonly name: string;
  /** What it does, for a model. */
  readonly description: string;
  /** The JSON Schema of its input, an object. */
  readonly inputSchema: JsonObject;
  readonly kind: ToolKind;
  /** `BUILTIN`, or the name of the MCP server. */
  readonly source: string;
  /** It says that it changes nothing. As the next three, a hint of its author that nobody enforces. */
  readonly readOnly: boolean;
  /** It says that it may destroy something. */
  readonly destructive: boolean;
  /** It says that calling it again with the same input changes nothing more. */
  readonly idempotent: boolean;
  /** It says that it reaches beyond the workspace. */
  readonly openWorld: boolean;
  /** The name for people; may be empty. */
  readonly title: string;
  /** The name that it has at its source. */
  readonly originalName: string;
  /** The JSON Schema of `structured` in its results, when it gives any. */
  readonly outputSchema: JsonObject | undefined;
}

/** The tools, and which servers' tools are missing and why. */
export interface ToolList {
  readonly tools: readonly ToolInfo[];
  readonly mcpErrors: readonly McpError[];
}

/** What a tool answered. */
export interface ToolResult {
  readonly type: "result";
  readonly name: string;
  /** The caller's id of the call, or the generated one. */
  readonly callId: string;
  /** All of its text, blocks joined by line feeds. */
  readonly text: string;
  /** The output, in order. */
  readonly blocks: readonly Block[];
  /** The tool ran and reports an error, for a model to act on. */
  readonly isError: boolean;
  readonly state: ToolResultState;
  /** The output as a JSON object, from tools with an output schema. */
  readonly structured: JsonObject | undefined;
  /** The path of the whole, when `blocks` hold a part of it; else empty. */
  readonly offloaded: string;
  /** The process that goes on in the background; else empty. */
  readonly backgroundProcessId: string;
}

/**
 * What happens in a call; `type` says what it is. A `result` comes last.
 *
 * * `process`: the call runs as this process.
 * * `text`: more of the output, for display; the result holds what a model should see.
 * * `data`: a block of the output, which is in the result too.
 * * `progress`: how far the tool is, in its own unit.
 * * `log`: a log line of the tool.
 */
export type ToolEvent =
  | { readonly type: "process"; readonly processId: string; readonly callId: string }
  | { readonly type: "text"; readonly delta: string }
  | { readonly type: "data"; readonly block: DataBlock }
  | { readonly type: "progress"; readonly progress: number; readonly total: number | undefined; readonly message: string }
  | { readonly type: "log"; readonly level: ToolLogLevelName; readonly logger: string; readonly data: JsonValue }
  | ToolResult;

/** The severity of a log line (RFC 5424). */
export type ToolLogLevelName = "debug" | "info" | "notice" | "warning" | "error" | "critical" | "alert" | "emergency";

/** How a tool is called. */
export interface CallToolOptions extends CallOptions, Who {
  /**
   * Stops the tool after so many milliseconds: what it gave by then is the result, of state `interrupted`. `timeoutMs`
   * ends the call itself instead.
   */
  toolTimeoutMs?: number | undefined;
  /** Text beyond so many bytes is stored in the workspace; absent: never. */
  offloadOverBytes?: number | undefined;
  /** The caller's id of the call, usually the one that the model gave. */
  callId?: string | undefined;
}

const KINDS: Readonly<Record<ToolKind, PbKind>> = { builtin: PbKind.BUILTIN, mcp: PbKind.MCP };

/** Lists and calls tools, as an agent in a session. */
export class Tools {
  readonly #connection: Connection;
  readonly #workspaceId: string;

  /** @internal */
  constructor(connection: Connection, workspaceId: string) {
    this.#connection = connection;
    this.#workspaceId = workspaceId;
  }

  /**
   * Calls a tool and resolves with its result. A tool that reports an error returns it (`isError`). `onEvent` is told
   * of each event before.
   *
   * Aborting the signal stops the tool. Rejects with `ToolNotFoundError` and `McpUnavailableError`. A broken connection
   * is `UnavailableError`: whether the tool ran is not known, and it is not called again.
   */
  async call(
    name: string,
    input: Readonly<Record<string, unknown>> = {},
    options: CallToolOptions & { onEvent?: ((event: ToolEvent) => void) | undefined } = {},
  ): Promise<ToolResult> {
    for await (const event of this.stream(name, input, options)) {
      if (event.type === "result") {
        return event;
      }
      options.onEvent?.(event);
    }
    throw new InternalError(`the server ended the call of ${JSON.stringify(name)} without a result`);
  }

  /** The events of a call, as {@link Tools.call} makes it. Leaving the loop before the result stops the tool. */
  stream(name: string, input: Readonly<Record<string, unknown>> = {}, options: CallToolOptions = {}): MessageStream<ToolEvent> {
    const request = {
      workspaceId: this.#workspaceId,
      ...who(options),
      name,
      input: jsonObject(input, "input"),
      callId: options.callId ?? "",
      offloadOverBytes: unsigned("offloadOverBytes", options.offloadOverBytes ?? 0),
      ...optionalDuration("timeout", options.toolTimeoutMs),
    };
    const connection = this.#connection;
    async function* events(signal: AbortSignal): AsyncGenerator<ToolEvent, void, undefined> {
      const call = { signal, timeoutMs: options.timeoutMs };
      for await (const response of connection.serverStream(ExecutionService.method.callTool, request, call)) {
        const event = toolEvent(name, response);
        if (event !== undefined) {
          yield event;
        }
      }
    }
    return generatedStream(events, options.signal);
  }

  /** The tools that can be called: the built-in ones, then those of the MCP servers, or only a kind, or one server's.
   * Starts the servers that it needs. Rejects with `McpNotFoundError` when `mcp` is none. */
  async list(
    options: { kind?: ToolKind | undefined; mcp?: string | undefined } & Who & CallOptions = {},
  ): Promise<ToolList> {
    const { kind, mcp = "" } = options;
    const request = {
      workspaceId: this.#workspaceId,
      ...who(options),
      ...(kind !== undefined && { kind: KINDS[kind] }),
      mcp,
      pageSize: 1000,
    };
    const method = DiscoveryService.method.listTools;
    const tools: ToolInfo[] = [];
    const mcpErrors: McpError[] = [];
    for await (const page of pages((pageToken, call) => this.#connection.unary(method, { ...request, pageToken }, call), options)) {
      tools.push(...page.tools.map(toolInfo));
      mcpErrors.push(...page.mcpErrors.map(mcpError));
    }
    return { tools, mcpErrors };
  }
}

/** A result as a block of a message, which can be put into a conversation or offloaded. */
export function toolResultBlock(result: ToolResult): ToolResultBlock {
  return { type: "tool_result", id: result.callId, name: result.name, output: result.blocks, state: result.state };
}

function toolInfo(tool: Tool): ToolInfo {
  const { name, description, source, readOnly, destructive, idempotent, openWorld, title, originalName } = tool;
  return {
    name, description, source, readOnly, destructive, idempotent, openWorld, title, originalName,
    inputSchema: tool.inputSchema ?? {},
    outputSchema: tool.outputSchema,
    kind: tool.kind === PbKind.MCP ? "mcp" : "builtin",
  };
}

function toolEvent(name: string, { event }: CallToolResponse): ToolEvent | undefined {
  switch (event.case) {
    case "process":
      return { type: "process", processId: event.value.processId, callId: event.value.callId };
    case "text":
      return { type: "text", delta: event.value.delta };
    case "data":
      return { type: "data", block: dataFromProto(event.value) };
    case "progress": {
      const { progress, total, message } = event.value;
      return { type: "progress", progress, total, message };
    }
    case "log": {
      const { level, logger, data } = event.value;
      const word = (ToolLogLevel[level] ?? "UNSPECIFIED").toLowerCase();
      return {
        type: "log",
        level: word === "unspecified" ? "info" : (word as ToolLogLevelName),
        logger,
        data: data === undefined ? null : toJson(ValueSchema, data),
      };
    }
    case "result":
      return toolResult(name, event.value);
    default:
      return undefined;
  }
}

function toolResult(name: string, result: PbResult): ToolResult {
  const blocks = result.content.map(blockFromProto);
  return {
    type: "result",
    name,
    callId: result.callId,
    text: blocks.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n"),
    blocks,
    isError: result.isError,
    state: stateFromProto(result.state),
    structured: result.structured,
    offloaded: result.offloaded?.path ?? "",
    backgroundProcessId: result.backgroundProcessId,
  };
}
