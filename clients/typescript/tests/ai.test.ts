import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { generateText, stepCountIs, streamText } from "ai";
import { MockLanguageModelV3, simulateReadableStream } from "ai/test";
import { workspaceTools, type WorkspaceToolOutput } from "../src/ai.js";
import { CancelledError, type McpError, type ToolEvent } from "../src/index.js";
import { onServer, SERVER, sharedWorkspace } from "./fixture.js";

type Generated = Awaited<ReturnType<MockLanguageModelV3["doGenerate"]>>;
type Prompt = MockLanguageModelV3["doGenerateCalls"][number]["prompt"];

const usage: Generated["usage"] = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};
const who = { agentId: "coder", sessionId: "ai" };
const MCP = { stdio: [process.execPath, fileURLToPath(new URL("./mcp-server.js", import.meta.url))] };

/** A model that calls these tools, each in a step of its own, and then says that it is done. */
function scripted(...calls: readonly (readonly [name: string, input: object])[]): MockLanguageModelV3 {
  const steps: Generated[] = calls.map(([toolName, input], index) => ({
    content: [{ type: "tool-call", toolCallId: `call-${index}`, toolName, input: JSON.stringify(input) }],
    finishReason: { unified: "tool-calls", raw: undefined },
    usage,
    warnings: [],
  }));
  const last: Generated = {
    content: [{ type: "text", text: "done" }],
    finishReason: { unified: "stop", raw: undefined },
    usage,
    warnings: [],
  };
  return new MockLanguageModelV3({ doGenerate: [...steps, last] });
}

/** What a model was told of its tool calls, in order. */
function told(prompt: Prompt | undefined): unknown[] {
  return (prompt ?? []).flatMap((message) =>
    message.role === "tool" ? message.content.flatMap((part) => (part.type === "tool-result" ? [part.output] : [])) : [],
  );
}

describe("AI SDK", onServer, () => {
  const shared = sharedWorkspace();

  test("a model uses the tools of a workspace", async () => {
    const { ws } = shared;
    await ws.mcps.add("small", MCP, who);
    const events: [string, string][] = [];
    const onEvent = (event: ToolEvent, name: string) => events.push([name, event.type]);
    const tools = await workspaceTools(ws, { ...who, onEvent, offloadOverBytes: 20_000 });
    const model = scripted(
      ["Bash", { command: "echo hello > made; cat made" }],
      ["mcp__small__picture", {}],
      ["Bash", { command: "echo wrong; exit 4" }],
      ["Bash", { command: "seq 10000" }],
      ["mcp__small__add", { a: 1, b: 2 }],
    );
    const result = await generateText({
      model, tools, stopWhen: stepCountIs(10), system: await ws.instructions(who), prompt: "Make something.",
    });
    assert.equal(result.text, "done");
    assert.equal(await ws.files.readText("made"), "hello\n");
    const outputs = told(model.doGenerateCalls.at(-1)?.prompt) as { type: string; value: unknown }[];
    assert.deepEqual(outputs.map(({ type }) => type), ["text", "content", "error-text", "text", "text"]);
    assert.match(String(outputs[0]?.value), /^hello/);
    const [text, image] = outputs[1]?.value as { type: string; mediaType?: string; data?: string }[];
    assert.deepEqual([text?.type, image?.type, image?.mediaType, image?.data?.slice(0, 8)], ["text", "image-data", "image/png", "iVBORw0K"]);
    assert.match(String(outputs[2]?.value), /exit code 4/);
    assert.equal(outputs[4]?.value, "3");
    const shown = result.steps[3]?.toolResults[0]?.output as WorkspaceToolOutput;
    assert.match(await ws.files.readText(shown.offloaded ?? ""), /\n10000\n/);
    assert.ok(String(outputs[3]?.value).length < 30_000);
    assert.deepEqual((result.steps[4]?.toolResults[0]?.output as WorkspaceToolOutput).structured, { sum: 3 });
    assert.ok(events.some(([name, type]) => name === "Bash" && type === "text"));
    const schema = model.doGenerateCalls[0]?.tools?.find(({ name }) => name === "mcp__small__add");
    assert.ok(schema?.type === "function" && schema.inputSchema.type === "object");
  });

  test("the abort signal stops the tool, and the call", async () => {
    const { ws } = shared;
    const stop = new AbortController();
    let failure: unknown;
    const tools = await workspaceTools(ws, {
      ...who,
      kind: "builtin",
      onEvent: (event) => event.type === "text" && stop.abort(new Error("enough")),
    });
    const model = scripted(["Bash", { command: "echo on; sleep 971" }]);
    const running = generateText({
      model, tools, stopWhen: stepCountIs(3), abortSignal: stop.signal, prompt: "Wait.",
      onStepFinish: ({ content }) => {
        failure = content.find((part) => part.type === "tool-error")?.error;
      },
    });
    const outcome = await running.then(() => undefined, (error: unknown) => error);
    assert.ok(outcome !== undefined || failure instanceof CancelledError);
    const found = async () => (await ws.tools.call("Bash", { command: "pgrep -f 'sleep 97[0-9]' || true" })).text;
    while (/^\d+$/m.test(await found())) {
      await new Promise((resolve) => setImmediate(resolve));
    }
  });

  test("the example", async () => {
    const example = fileURLToPath(new URL("../examples/ai-sdk.js", import.meta.url));
    const env = { ...process.env, WORKSPACED_ADDRESS: SERVER };
    const { stdout } = await promisify(execFile)(process.execPath, [example], { env });
    assert.match(stdout, /\n {3}\d+\n\[exit code 0\]\nThat is all\.\n$/);
  });

  test("a stream, and servers that cannot be used", async () => {
    const broken = { name: "broken", transport: { case: "stdio", value: { command: "/bin/false" } } } as const;
    const ws = await shared.client.initialize({ backend: "local", defaultMcps: [broken] });
    const missing: McpError[] = [];
    const tools = await workspaceTools(ws, { onMcpError: (error) => missing.push(error) });
    assert.deepEqual(missing.map(({ mcp }) => mcp), ["broken"]);
    assert.ok("Bash" in tools);
    const chunks = [
      { type: "tool-call", toolCallId: "odd/id", toolName: "Bash", input: JSON.stringify({ command: "echo streamed" }) },
      { type: "finish", finishReason: { unified: "tool-calls", raw: undefined }, usage },
    ] as const;
    const model = new MockLanguageModelV3({ doStream: { stream: simulateReadableStream({ chunks: [...chunks] }) } });
    const parts = [];
    for await (const part of streamText({ model, tools, prompt: "Stream." }).fullStream) {
      parts.push(part);
    }
    const result = parts.find((part) => part.type === "tool-result");
    assert.match((result?.output as WorkspaceToolOutput).text, /^streamed/);
    await ws.delete();
  });
});
