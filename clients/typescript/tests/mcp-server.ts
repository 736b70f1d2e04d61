/** An MCP server over standard input and output, as small as tests allow: `node mcp-server.js`. */

import { createInterface } from "node:readline";

interface Request {
  id?: number | string;
  method: string;
  params?: { name?: string; arguments?: Record<string, unknown>; uri?: string; _meta?: { progressToken?: unknown } };
}

const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const object = (properties: object, required: string[] = []) => ({ type: "object", properties, required });

const TOOLS = [
  { name: "add", description: "Adds two numbers.", inputSchema: object({ a: { type: "number" }, b: { type: "number" } }, ["a", "b"]),
    outputSchema: object({ sum: { type: "number" } }) },
  { name: "picture", description: "Gives a picture.", inputSchema: object({}), annotations: { readOnlyHint: true } },
  { name: "slow", description: "Tells of its progress, then waits.", inputSchema: object({ wait: { type: "boolean" } }) },
];

function say(message: object): void {
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
}

function call({ name, arguments: input = {}, _meta }: NonNullable<Request["params"]>): object | undefined {
  if (name === "add") {
    const sum = Number(input["a"]) + Number(input["b"]);
    return { content: [{ type: "text", text: String(sum) }], structuredContent: { sum } };
  }
  if (name === "picture") {
    return { content: [{ type: "text", text: "here" }, { type: "image", mimeType: "image/png", data: PIXEL }] };
  }
  say({ method: "notifications/progress", params: { progressToken: _meta?.progressToken, progress: 1, total: 2, message: "half" } });
  return input["wait"] === true ? undefined : { content: [{ type: "text", text: "done" }], isError: true };
}

function answer({ method, params = {} }: Request): object | undefined {
  switch (method) {
    case "initialize":
      return { protocolVersion: "2025-06-18", capabilities: { tools: {}, resources: {}, prompts: {} }, serverInfo: { name: "small", version: "1" } };
    case "tools/list":
      return { tools: TOOLS };
    case "tools/call":
      return call(params);
    case "resources/list":
      return { resources: [{ uri: "test://one", name: "one", mimeType: "text/plain" }] };
    case "resources/templates/list":
      return { resourceTemplates: [{ uriTemplate: "test://{name}", name: "any" }] };
    case "resources/read":
      return { contents: [{ uri: params.uri, mimeType: "text/plain", text: "x".repeat(params.uri === "test://long" ? 5000 : 5) }] };
    case "prompts/list":
      return { prompts: [{ name: "greet", arguments: [{ name: "who", required: true }] }] };
    case "prompts/get":
      return { messages: [{ role: "user", content: { type: "text", text: `Greet ${String(params.arguments?.["who"])}.` } }] };
    default:
      return {};
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line) as Request;
  const result = request.id === undefined ? undefined : answer(request);
  if (result !== undefined) {
    say({ id: request.id, result });
  }
}
