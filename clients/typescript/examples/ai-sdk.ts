/**
 * An agent of the AI SDK with the tools of a workspace.
 *
 *     npm run build && node dist/examples/ai-sdk.js
 *
 * It needs a workspaced server at WORKSPACED_ADDRESS (127.0.0.1:7420) and no key: the model is scripted. Give `model`
 * the one of your provider, for example `anthropic("…")` of `@ai-sdk/anthropic`, to see a real one work.
 */

import { connect } from "@workspaced/client";
import { workspaceTools } from "@workspaced/client/ai";
import { generateText, stepCountIs } from "ai";
import { MockLanguageModelV3 } from "ai/test";

const usage = {
  inputTokens: { total: 0, noCache: 0, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 0, text: 0, reasoning: 0 },
};
const model = new MockLanguageModelV3({
  doGenerate: [
    {
      content: [
        { type: "text", text: "I count the files below /etc." },
        { type: "tool-call", toolCallId: "1", toolName: "Bash", input: JSON.stringify({ command: "ls /etc | wc -l" }) },
      ],
      finishReason: { unified: "tool-calls", raw: undefined },
      usage,
      warnings: [],
    },
    { content: [{ type: "text", text: "That is all." }], finishReason: { unified: "stop", raw: undefined }, usage, warnings: [] },
  ],
});

await using client = connect({ address: process.env["WORKSPACED_ADDRESS"] });
await using ws = await client.acquire({ policy: "per_session", userId: "ada", agentId: "coder", sessionId: "s1" });
const who = { agentId: "coder", sessionId: "s1" };

const { steps } = await generateText({
  model,
  system: await ws.instructions(who),
  tools: await workspaceTools(ws, { ...who, toolTimeoutMs: 60_000, offloadOverBytes: 50_000 }),
  stopWhen: stepCountIs(20),
  prompt: "How many entries does /etc have?",
});

for (const { text, toolCalls, toolResults } of steps) {
  console.log(text);
  toolCalls.forEach(({ toolName, input }) => console.log("  ", toolName, input));
  toolResults.forEach(({ output }) => console.log("  ", (output as { text: string }).text));
}
