/** What an agent has: tools, MCP servers, skills, instructions; and leases. */

import { Client, LeasedWorkspace } from "../../src/index.js";
import type { AcquireOptions, McpDeclaration, McpInfo, ToolKind, ToolResult, Who } from "../../src/index.js";
import { bytesOf } from "./data.js";
import { messageOf } from "./offload_ops.js";
import { DriverBug, flag, milliseconds, number, optionalNumber, optionalText, register, scopes, text, type Args } from "./registry.js";

register({
  async list_tools(objects, args, call) {
    const options = { ...call, ...who(args), kind: optionalText(args, "kind") as ToolKind | undefined, mcp: optionalText(args, "mcp") };
    const { tools, mcpErrors } = await objects.workspace(args).tools.list(options);
    return {
      names: tools.map(({ name }) => name),
      failures: Object.fromEntries(mcpErrors.map(({ mcp, reason }) => [mcp, reason])),
    };
  },

  async tool_schema(objects, args, call) {
    const { tools } = await objects.workspace(args).tools.list({ ...call, ...who(args) });
    const found = tools.find(({ name }) => name === text(args, "name"));
    if (found === undefined) {
      throw new DriverBug(`no tool ${text(args, "name")}`);
    }
    const { description, inputSchema, kind, readOnly } = found;
    return { description, input_schema: inputSchema, kind, read_only: readOnly };
  },

  async call_tool(objects, args, call) {
    const { tools } = objects.workspace(args);
    const options = {
      ...call,
      ...who(args),
      toolTimeoutMs: milliseconds(args, "tool_timeout"),
      offloadOverBytes: optionalNumber(args, "offload_over_bytes"),
      callId: optionalText(args, "call_id"),
    };
    const input = args["input"] as Record<string, unknown>;
    if (flag(args, "as_stream") !== true) {
      return toolResult(await tools.call(text(args, "name"), input, options), new Set());
    }
    const kinds = new Set<string>();
    for await (const event of tools.stream(text(args, "name"), input, options)) {
      if (event.type === "result") {
        return toolResult(event, kinds);
      }
      kinds.add(event.type);
    }
    throw new DriverBug("a tool's events ended without a result");
  },

  async add_mcp(objects, args, call) {
    const declaration = {
      ...given(args, "stdio", "http", "env", "headers"),
      enabledTools: args["enabled_tools"] as string[] | undefined,
      disabledTools: args["disabled_tools"] as string[] | undefined,
      callTimeoutMs: milliseconds(args, "call_timeout"),
    } as McpDeclaration;
    return mcpOf(await objects.workspace(args).mcps.add(text(args, "name"), declaration, { ...call, ...who(args) }));
  },

  async list_mcps(objects, args, call) {
    const found = await objects.workspace(args).mcps.list({ ...call, ...who(args), start: flag(args, "start") });
    return {
      names: found.map(({ name }) => name),
      states: Object.fromEntries(found.map(({ name, state }) => [name, state])),
      errors: Object.fromEntries(found.flatMap(({ name, error }) => (error === undefined ? [] : [[name, error.reason]]))),
    };
  },

  async remove_mcp(objects, args, call) {
    const options = { ...call, ...who(args), allowMissing: flag(args, "allow_missing") };
    return { removed: await objects.workspace(args).mcps.remove(text(args, "name"), options) };
  },

  async mcp_resources(objects, args, call) {
    const found = await objects.workspace(args).mcps.resources({ ...call, ...who(args), mcp: optionalText(args, "mcp") });
    return { uris: found.map(({ uri, uriTemplate }) => uri || uriTemplate).sort() };
  },

  async read_resource(objects, args, call) {
    const options = { ...call, ...who(args), offloadOverBytes: optionalNumber(args, "offload_over_bytes") };
    const parts = await objects.workspace(args).mcps.readResource(text(args, "mcp"), text(args, "uri"), options);
    const contents = parts.map(({ uri, text, data, path }) => ({
      uri,
      text,
      data: data === undefined ? undefined : Buffer.from(data).toString("base64"),
      path,
    }));
    return { contents };
  },

  async mcp_prompts(objects, args, call) {
    const found = await objects.workspace(args).mcps.prompts({ ...call, ...who(args), mcp: optionalText(args, "mcp") });
    return { names: found.map(({ name }) => name).sort() };
  },

  async get_prompt(objects, args, call) {
    const values = args["arguments"] as Record<string, string> | undefined;
    const options = { ...call, ...who(args) };
    const messages = await objects.workspace(args).mcps.getPrompt(text(args, "mcp"), text(args, "name"), values, options);
    return { messages: messages.map(messageOf) };
  },

  async add_skill(objects, args, call) {
    const source = args["archive"] === undefined ? text(args, "local") : bytesOf(args["archive"]);
    const options = { ...call, agentId: optionalText(args, "agent_id"), replace: flag(args, "replace") };
    const { name, description, path } = await objects.workspace(args).skills.add(source, options);
    return { name, description, path };
  },

  async list_skills(objects, args, call) {
    const found = await objects.workspace(args).skills.list({ ...call, agentId: optionalText(args, "agent_id") });
    return { names: found.map(({ name }) => name).sort() };
  },

  async get_skill(objects, args, call) {
    const options = { ...call, agentId: optionalText(args, "agent_id") };
    const { name, description, markdown, files } = await objects.workspace(args).skills.get(text(args, "name"), options);
    return { name, description, markdown, files: files.map(({ path }) => path).sort() };
  },

  async remove_skill(objects, args, call) {
    const options = { ...call, agentId: optionalText(args, "agent_id"), allowMissing: flag(args, "allow_missing") };
    return { removed: await objects.workspace(args).skills.remove(text(args, "name"), options) };
  },

  async skill_problems(objects, args, call) {
    const found = await objects.workspace(args).skills.problems({ ...call, agentId: optionalText(args, "agent_id") });
    return { reasons: found.map(({ reason }) => reason).sort() };
  },

  async instructions(objects, args, call) {
    return { text: await objects.workspace(args).instructions({ ...call, ...who(args) }) };
  },

  async purge_session(objects, args, call) {
    const options = { ...call, agentId: optionalText(args, "agent_id") };
    await objects.workspace(args).purgeSession(text(args, "session_id"), options);
    return {};
  },

  async purge_agent(objects, args, call) {
    await objects.workspace(args).purgeAgent({ ...call, agentId: optionalText(args, "agent_id") });
    return {};
  },

  async acquire(objects, args, call) {
    const lease = await objects.get(args, "client", Client).acquire({
      ...call,
      ...who(args),
      policy: text(args, "policy") as AcquireOptions["policy"],
      userId: text(args, "user_id"),
      backend: optionalText(args, "backend") as AcquireOptions["backend"],
      template: optionalText(args, "template"),
      leaseDurationMs: milliseconds(args, "lease_duration"),
    });
    objects.put(args, "lease", lease);
    objects.store(optionalText(args, "ws") ?? "ws", lease);
    return { workspace_id: lease.id, lease_id: lease.leaseId, created: lease.created };
  },

  async lease_info(objects, args) {
    await Promise.resolve();
    const lease = objects.get(args, "lease", LeasedWorkspace);
    return { lease_id: lease.leaseId, expire_time: lease.leaseExpireTime.getTime() / 1000 };
  },

  async release(objects, args, call) {
    await objects.get(args, "lease", LeasedWorkspace).release(call);
    return {};
  },
});

scopes.set("tool", (objects, args) => {
  const input = args["input"] as Record<string, unknown> | undefined;
  return Promise.resolve(objects.workspace(args).tools.stream(text(args, "name"), input, who(args)));
});

function who(args: Args): Who {
  return { agentId: optionalText(args, "agent_id"), sessionId: optionalText(args, "session_id") };
}

function given(args: Args, ...names: string[]): Record<string, unknown> {
  return Object.fromEntries(names.filter((name) => args[name] !== undefined).map((name) => [name, args[name]]));
}

function mcpOf({ name, state, serverName, toolCount }: McpInfo): object {
  return { name, state, server_name: serverName, tool_count: toolCount };
}

function toolResult(result: ToolResult, kinds: Set<string>): object {
  return {
    text: result.text,
    is_error: result.isError,
    state: result.state,
    structured: result.structured ?? null,
    blocks: result.blocks.map(({ type }) => type).filter((type) => type !== "unknown"), // as a user skips them
    offloaded: result.offloaded,
    events: [...kinds].sort(),
  };
}
