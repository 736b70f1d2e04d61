/** The MCP servers of a workspace. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { LONG_MS, type CallOptions, type Connection } from "./connection.js";
import { messageFromProto, type Message } from "./content.js";
import { DiscoveryService } from "./gen/workspaced/v1/discovery_pb.js";
import { ManagementService } from "./gen/workspaced/v1/management_pb.js";
import { McpHttpKind, type McpSchema } from "./gen/workspaced/v1/mcp_pb.js";
import { mcpInfo, mcpPrompt, mcpResource, resourceContent } from "./mcp-info.js";
import type { McpInfo, McpPrompt, McpResource, ResourceContent } from "./mcp-info.js";
import { collected } from "./paging.js";
import { unsigned } from "./unsigned.js";
import { optionalDuration, who, type Who } from "./who.js";

/** A program that runs in the workspace. */
export interface McpStdio {
  /** The program and its arguments. */
  stdio: readonly string[];
  /** Added to the workspace's environment. The values are secret: written, never read back. */
  env?: Readonly<Record<string, string>> | undefined;
  /** Working directory, absolute or relative to the workspace's. */
  cwd?: string | undefined;
  http?: undefined;
}

/** A server that is dialled from the workspace, where `localhost` is the workspace. */
export interface McpHttp {
  /** An `http` or `https` URL. */
  http: string;
  /** Headers of every request. The values are secret: written, never read back. */
  headers?: Readonly<Record<string, string>> | undefined;
  /** The transport (`streamable`). */
  kind?: "streamable" | "sse" | undefined;
  stdio?: undefined;
}

/** What an MCP server is. */
export type McpDeclaration = (McpStdio | McpHttp) & {
  /** Only these of its tools; absent: all. */
  enabledTools?: readonly string[] | undefined;
  /** None of these, which wins. */
  disabledTools?: readonly string[] | undefined;
  /** The longest that one request to it may take; absent: as long as the caller waits. */
  callTimeoutMs?: number | undefined;
  /** It keeps nothing between calls. */
  stateless?: boolean | undefined;
};

const KINDS = { streamable: McpHttpKind.STREAMABLE, sse: McpHttpKind.SSE } as const;
const PAGE = { pageSize: 1000 };

/**
 * Declares, lists and asks MCP servers. They belong to an agent in a session. Nothing runs before it is needed, and one
 * that fails does not hide the others.
 */
export class Mcps {
  readonly #connection: Connection;
  readonly #workspaceId: string;

  /** @internal */
  constructor(connection: Connection, workspaceId: string) {
    this.#connection = connection;
    this.#workspaceId = workspaceId;
  }

  /**
   * Declares a server and connects to it. How long that may take is `timeoutMs` (half an hour).
   *
   * Idempotent for the same declaration; a name that is taken by another is `McpExistsError`. Rejects with
   * `McpStartFailedError`, `McpUnavailableError` and `QuotaExceededError`; after an error and after a cancellation the
   * server is stopped and the name is free.
   */
  async add(name: string, declaration: McpDeclaration, options: Who & CallOptions = {}): Promise<McpInfo> {
    const { signal, timeoutMs = LONG_MS } = options;
    const request = { ...this.#whose(options), mcp: mcpSpec(name, declaration) };
    const method = ManagementService.method.addMcp;
    return mcpInfo((await this.#connection.unary(method, request, { signal, timeoutMs, repeatable: true })).mcp);
  }

  /** The servers in the order of their declaration, started when they never were, unless `start: false`. */
  async list(options: { start?: boolean | undefined } & Who & CallOptions = {}): Promise<McpInfo[]> {
    const request = { ...this.#whose(options), ...PAGE, noStart: options.start === false };
    const method = DiscoveryService.method.listMcps;
    const page = (pageToken: string, call: CallOptions) => this.#connection.unary(method, { ...request, pageToken }, call);
    return await collected(page, options, ({ mcps }) => mcps.map(mcpInfo));
  }

  /** Forgets a server and ends it; whether there was one. `McpNotFoundError` without `allowMissing`, with which it is
   * idempotent, and repeated. */
  async remove(name: string, options: { allowMissing?: boolean | undefined } & Who & CallOptions = {}): Promise<boolean> {
    const { allowMissing = false, signal, timeoutMs } = options;
    const request = { ...this.#whose(options), name, allowMissing };
    const method = ManagementService.method.removeMcp;
    return (await this.#connection.unary(method, request, { signal, timeoutMs, repeatable: allowMissing })).removed;
  }

  /** The resources of one server, or of all that can be used. */
  async resources(options: { mcp?: string | undefined } & Who & CallOptions = {}): Promise<McpResource[]> {
    const request = { ...this.#whose(options), ...PAGE, mcp: options.mcp ?? "" };
    const method = DiscoveryService.method.listMcpResources;
    const page = (pageToken: string, call: CallOptions) => this.#connection.unary(method, { ...request, pageToken }, call);
    return await collected(page, options, ({ resources }) => resources.map(mcpResource));
  }

  /** The parts of a resource; those larger than `offloadOverBytes` are stored in the workspace (absent: never). */
  async readResource(
    mcp: string,
    uri: string,
    options: { offloadOverBytes?: number | undefined } & Who & CallOptions = {},
  ): Promise<ResourceContent[]> {
    const request = {
      ...this.#whose(options),
      mcp,
      uri,
      offloadOverBytes: unsigned("offloadOverBytes", options.offloadOverBytes ?? 0),
    };
    const { contents } = await this.#connection.unary(DiscoveryService.method.readMcpResource, request, call(options));
    return contents.map(resourceContent);
  }

  /** The prompts of one server, or of all that can be used. */
  async prompts(options: { mcp?: string | undefined } & Who & CallOptions = {}): Promise<McpPrompt[]> {
    const request = { ...this.#whose(options), ...PAGE, mcp: options.mcp ?? "" };
    const method = DiscoveryService.method.listMcpPrompts;
    const page = (pageToken: string, call: CallOptions) => this.#connection.unary(method, { ...request, pageToken }, call);
    return await collected(page, options, ({ prompts }) => prompts.map(mcpPrompt));
  }

  /** The messages of a prompt, with its arguments filled in. */
  async getPrompt(
    mcp: string,
    name: string,
    values: Readonly<Record<string, string>> = {},
    options: Who & CallOptions = {},
  ): Promise<Message[]> {
    const request = { ...this.#whose(options), mcp, name, arguments: { ...values } };
    const { messages } = await this.#connection.unary(DiscoveryService.method.getMcpPrompt, request, call(options));
    return messages.map(messageFromProto);
  }

  #whose(options: Who) {
    return { workspaceId: this.#workspaceId, ...who(options) };
  }
}

/** The declaration for the API. Throws `TypeError` for what is none. */
export function mcpSpec(name: string, declaration: McpDeclaration): MessageInitShape<typeof McpSchema> {
  const { enabledTools = [], disabledTools = [], callTimeoutMs, stateless = false } = declaration;
  return {
    name,
    transport: transport(declaration),
    enabledTools: [...enabledTools],
    disabledTools: [...disabledTools],
    stateless,
    ...optionalDuration("callTimeout", callTimeoutMs),
  };
}

function transport(given: McpStdio | McpHttp): NonNullable<Exclude<MessageInitShape<typeof McpSchema>, { $typeName: string }>["transport"]> {
  if ((given.stdio === undefined) === (given.http === undefined)) {
    throw new TypeError("an MCP server is reached either by stdio or by http");
  }
  if (given.http !== undefined) {
    const { env, cwd } = given as { env?: unknown; cwd?: unknown };
    if (env !== undefined || cwd !== undefined) {
      throw new TypeError("env and cwd belong to stdio");
    }
    const { http: url, headers, kind = "streamable" } = given;
    return { case: "http", value: { url, headers: { ...headers }, kind: KINDS[kind] } };
  }
  const [command, ...args] = Array.isArray(given.stdio) ? (given.stdio as readonly string[]) : [];
  if (command === undefined) {
    throw new TypeError("stdio is an array: the program and its arguments");
  }
  const { headers, kind } = given as { headers?: unknown; kind?: unknown };
  if (headers !== undefined || kind !== undefined) {
    throw new TypeError("headers and kind belong to http");
  }
  return { case: "stdio", value: { command, args, env: { ...given.env }, cwd: given.cwd ?? "" } };
}

function call({ signal, timeoutMs }: CallOptions): CallOptions {
  return { signal, timeoutMs };
}
