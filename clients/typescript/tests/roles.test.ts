import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  ArchiveInvalidError, CancelledError, McpExistsError, McpNotFoundError, McpStartFailedError, OffloadNotFoundError,
  SkillExistsError, SkillInvalidError, SkillNotFoundError, ToolNotFoundError, toolResultBlock, type Message, type ToolEvent,
} from "../src/index.js";
import { blockFromProto, blockToProto } from "../src/content.js";
import { ContentBlockSchema } from "../src/gen/workspaced/v1/content_pb.js";
import { onServer, sharedWorkspace, withDirectory } from "./fixture.js";

const MCP = { stdio: [process.execPath, fileURLToPath(new URL("./mcp-server.js", import.meta.url))] };
const SKILL = "---\nname: greet\ndescription: Says hello.\nlevel: 3\n---\nSay hello.\n";

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) {
    found.push(item);
  }
  return found;
}

test("a block of a newer server goes back as it came", () => {
  // Field 99, a message, which no version knows.
  const message = fromBinary(ContentBlockSchema, new Uint8Array([0x0a, 1, 0x41, 0x9a, 0x06, 2, 0x08, 7]));
  const block = blockFromProto(message);
  assert.equal(block.type, "unknown");
  assert.deepEqual(toBinary(ContentBlockSchema, blockToProto(block)), toBinary(ContentBlockSchema, message));
});

test("blocks that the API does not have are refused here", () => {
  assert.throws(() => blockToProto({ type: "video" } as never), TypeError);
  assert.throws(() => blockToProto({ type: "data", mediaType: "image/png" }), TypeError);
  const input = { big: 10n } as never;
  assert.throws(() => blockToProto({ type: "tool_call", id: "1", name: "n", input }), /input\.big: bigint is no JSON value/);
  const made = blockToProto({ type: "tool_call", id: "1", name: "n", input: JSON.parse('{"list": [null, {"a": 1.5}]}') as never });
  const back = blockFromProto(fromBinary(ContentBlockSchema, toBinary(ContentBlockSchema, made)));
  assert.ok(back.type === "tool_call" && JSON.stringify(back.input) === '{"list":[null,{"a":1.5}]}');
  assert.deepEqual(blockFromProto(create(ContentBlockSchema, { id: "i", block: { case: "text", value: { text: "t" } } })), { type: "text", text: "t", id: "i" });
});

describe("tools and MCP servers", onServer, () => {
  const shared = sharedWorkspace();
  const who = { agentId: "coder", sessionId: "s1" };

  test("a tool's result, its events, and its errors", async () => {
    const { tools } = shared.ws;
    const { tools: known, mcpErrors } = await tools.list({ kind: "builtin" });
    assert.deepEqual(mcpErrors, []);
    const bash = known.find((tool) => tool.name === "Bash");
    assert.equal(bash?.kind, "builtin");
    assert.equal(bash.inputSchema["type"], "object");
    const events: ToolEvent[] = [];
    const result = await tools.call("Bash", { command: "echo hello; exit 3" }, { callId: "c1", onEvent: (event) => events.push(event) });
    assert.match(result.text, /^hello/);
    assert.equal(result.isError, true);
    assert.equal(result.state, "error");
    assert.equal(result.callId, "c1");
    assert.ok(events.some((event) => event.type === "process"));
    assert.equal(events.flatMap((event) => (event.type === "text" ? [event.delta] : [])).join(""), "hello\n");
    assert.equal((await tools.call("Bash", { wrong: 1 })).isError, true);
    await assert.rejects(tools.call("Nothing"), ToolNotFoundError);
    const long = await tools.call("Bash", { command: "seq 5000" }, { ...who, offloadOverBytes: 100 });
    assert.match(await shared.ws.files.readText(long.offloaded), /\n4999\n5000\n/);
  });

  test("a tool is stopped by its time, by the signal, and by leaving its events", async () => {
    const { tools } = shared.ws;
    const late = await tools.call("Bash", { command: "echo first; sleep 100" }, { toolTimeoutMs: 500 });
    assert.equal(late.state, "interrupted");
    assert.match(late.text, /first/);
    const running = async () => (await shared.ws.tools.call("Bash", { command: "pgrep -f 'sleep 98[0-9]' || true" })).text;
    const stop = new AbortController();
    const onEvent = (event: ToolEvent) => event.type === "text" && stop.abort();
    await assert.rejects(tools.call("Bash", { command: "echo on; sleep 981" }, { signal: stop.signal, onEvent }), CancelledError);
    for await (const event of tools.stream("Bash", { command: "echo on; sleep 982" })) {
      if (event.type === "text") {
        break;
      }
    }
    while (/^\d+$/m.test(await running())) {
      await new Promise((resolve) => setImmediate(resolve));
    }
  });

  test("an MCP server's tools, resources and prompts", async () => {
    const { mcps, tools } = shared.ws;
    const info = await mcps.add("small", { ...MCP, env: { SECRET: "x" } }, who);
    assert.equal(info.state, "ready");
    assert.equal(info.serverName, "small");
    assert.equal(info.toolCount, 3);
    assert.equal((await mcps.add("small", { ...MCP, env: { SECRET: "x" } }, who)).name, "small");
    await assert.rejects(mcps.add("small", { stdio: ["cat"] }, who), McpExistsError);
    await assert.rejects(mcps.add("bad", { stdio: ["/bin/sh", "-c", "echo broken >&2; exit 1"] }, who), McpStartFailedError);
    await assert.rejects(mcps.add("bad", { stdio: [] }, who), TypeError);
    await assert.rejects(mcps.add("bad", { http: "http://localhost", stdio: ["cat"] } as never, who), TypeError);
    assert.deepEqual((await mcps.list(who)).map(({ name, state }) => [name, state]), [["small", "ready"]]);
    assert.deepEqual(await mcps.list(), []);

    const listed = await tools.list({ ...who, mcp: "small" });
    assert.deepEqual(listed.tools.map((tool) => tool.originalName), ["add", "picture", "slow"]);
    assert.equal(listed.tools[1]?.readOnly, true);
    const sum = await tools.call("mcp__small__add", { a: 2, b: 3 }, who);
    assert.deepEqual([sum.text, sum.structured, sum.isError], ["5", { sum: 5 }, false]);
    const picture = await tools.call("mcp__small__picture", {}, who);
    const [, image] = picture.blocks;
    assert.ok(image?.type === "data" && image.mediaType === "image/png" && image.data?.[0] === 0x89);
    const events = await all(tools.stream("mcp__small__slow", {}, who));
    assert.deepEqual(events.find((event) => event.type === "progress"), { type: "progress", progress: 1, total: 2, message: "half" });
    const last = events.at(-1);
    assert.ok(last?.type === "result" && last.isError);

    assert.deepEqual((await mcps.resources(who)).map(({ uri, uriTemplate }) => uri || uriTemplate), ["test://one", "test://{name}"]);
    assert.equal((await mcps.readResource("small", "test://one", who))[0]?.text, "xxxxx");
    const [offloaded] = await mcps.readResource("small", "test://long", { ...who, offloadOverBytes: 100 });
    assert.equal((await shared.ws.files.stat(offloaded?.path ?? "")).size, 5000);
    const [prompt] = await mcps.prompts({ ...who, mcp: "small" });
    assert.deepEqual(prompt?.arguments.map(({ name, required }) => [name, required]), [["who", true]]);
    const [message] = await mcps.getPrompt("small", "greet", { who: "Ada" }, who);
    assert.deepEqual([message?.role, message?.content], ["user", [{ type: "text", text: "Greet Ada." }]]);

    assert.match(await shared.ws.instructions(who), /\w/);
    assert.equal(await mcps.remove("small", who), true);
    await assert.rejects(mcps.remove("small", who), McpNotFoundError);
    assert.equal(await mcps.remove("small", { ...who, allowMissing: true }), false);
  });
});

describe("skills", onServer, () => {
  const shared = sharedWorkspace();
  const agent = { agentId: "coder" };

  test("from a directory, an archive, and the bytes of one", async () => {
    const { skills } = shared.ws;
    await withDirectory(async (directory) => {
      const skill = join(directory, "greet");
      const deep = `d${"e".repeat(60)}p/${"n".repeat(60)}`;
      await mkdir(join(skill, deep), { recursive: true });
      await writeFile(join(skill, "SKILL.md"), SKILL);
      await writeFile(join(skill, deep, "größe.sh"), "#!/bin/sh\n", { mode: 0o755 });
      const info = await skills.add(skill, agent);
      assert.deepEqual([info.name, info.description, info.metadata], ["greet", "Says hello.", { level: 3 }]);
      const detail = await skills.get("greet", agent);
      assert.equal(detail.markdown, SKILL);
      assert.deepEqual(detail.files.map(({ path, size, executable }) => [path, size, executable]), [
        ["SKILL.md", SKILL.length, false],
        [`${deep}/größe.sh`, 10, true],
      ]);
      const archive = join(directory, "greet.tar.gz");
      execFileSync("tar", ["czf", archive, "-C", skill, "."]);
      assert.equal((await skills.add(archive, agent)).sha256, info.sha256);
      const bytes = await readFile(archive);
      assert.equal((await skills.add(bytes, agent)).sha256, info.sha256);
      assert.equal((await skills.add(new Blob([bytes]).stream(), { ...agent, replace: true })).sha256, info.sha256);
      await writeFile(join(skill, "SKILL.md"), `${SKILL}More.\n`);
      await assert.rejects(skills.add(skill, agent), SkillExistsError);
      assert.notEqual((await skills.add(skill, { ...agent, replace: true })).sha256, info.sha256);
      await writeFile(join(skill, "SKILL.md"), "no front matter");
      await assert.rejects(skills.add(skill, agent), SkillInvalidError);
      await assert.rejects(skills.add(new Uint8Array([1, 2, 3]), agent), ArchiveInvalidError);
      await assert.rejects(skills.add(join(directory, "none"), agent), { code: "ENOENT" });
    });
    assert.deepEqual((await skills.list(agent)).map(({ name }) => name), ["greet"]);
    assert.deepEqual(await skills.problems(agent), []);
    assert.deepEqual(await skills.list({ agentId: "other" }), []);
    assert.equal(await skills.remove("greet", agent), true);
    await assert.rejects(skills.get("greet", agent), SkillNotFoundError);
    assert.equal(await skills.remove("greet", { ...agent, allowMissing: true }), false);
  });
});

describe("offloading", onServer, () => {
  const shared = sharedWorkspace();

  test("contexts, tool results and data", async () => {
    const { offload, tools } = shared.ws;
    const bytes = new Uint8Array([0, 1, 2, 255]);
    const context = await offload.context("s1", [
      { role: "system", content: "Be brief.", metadata: { a: [1, null] } },
      {
        role: "assistant",
        name: "coder",
        content: [
          { type: "thinking", thinking: "hm", signature: "sig" },
          { type: "tool_call", id: "1", name: "Bash", input: { command: "ls" }, rawInput: '{"command":"ls"}' },
          { type: "data", mediaType: "image/png", data: bytes, name: "p.png" },
          { type: "hint", content: [{ type: "text", text: "note" }], source: "me" },
        ],
      },
    ]);
    assert.equal(context.kind, "context");
    async function* more(): AsyncGenerator<Message> {
      yield await Promise.resolve({ role: "user", content: [{ type: "text", text: "thanks" }] } as const);
    }
    assert.equal((await offload.context("s1", more())).path, context.path);
    await offload.context("s1", [{ role: "user", content: "once" }], { requestId: "r1" });
    await offload.context("s1", [{ role: "user", content: "once" }], { requestId: "r1" });

    const messages = await all(offload.messages(context.path));
    assert.deepEqual(messages.map(({ role }) => role), ["system", "assistant", "user", "user"]);
    assert.deepEqual(messages[0]?.metadata, { a: [1, null] });
    const data = messages[1]?.content[2];
    assert.ok(data?.type === "data" && data.url !== undefined);
    assert.deepEqual(await offload.read(data.url), bytes);
    assert.deepEqual(await offload.read(data.url, { offset: 1, length: 2 }), bytes.subarray(1, 3));
    assert.deepEqual(messages[1]?.content[3], { type: "hint", content: [{ type: "text", text: "note" }], source: "me" });
    assert.equal((await all(offload.messages(context.url, { skip: 1, limit: 2 }))).length, 2);

    const result = await tools.call("Bash", { command: "echo kept" }, { callId: "c7" });
    const stored = await offload.toolResult("s1", result);
    assert.equal(stored.toolCallId, "c7");
    assert.match(new TextDecoder().decode(await offload.read(stored.path)), /kept/);
    await offload.toolResult("s1", { ...toolResultBlock(result), id: "c8" });
    const block = await offload.data(new Blob(["text"]), { mediaType: "text/plain", name: "n" });
    assert.deepEqual([block.mediaType, block.name], ["text/plain", "n"]);
    assert.deepEqual((await offload.list({ sessionId: "s1" })).map(({ kind }) => kind).sort(), ["context", "tool_result", "tool_result"]);
    assert.equal((await offload.list({ kind: "data" })).length, 2);
    await shared.ws.purgeSession("s1");
    await shared.ws.purgeAgent();
    assert.deepEqual(await offload.list({ sessionId: "s1" }), []);
    await assert.rejects(offload.read(context.path), OffloadNotFoundError);
  });

  test("messages that stop coming store nothing", async () => {
    const { offload } = shared.ws;
    class Mine extends Error {}
    async function* failing(): AsyncGenerator<Message> {
      yield await Promise.resolve({ role: "user", content: [{ type: "text", text: "one" }] } as const);
      throw new Mine("no more");
    }
    await assert.rejects(offload.context("s2", failing()), Mine);
    const stop = new AbortController();
    const stalled: AsyncIterable<Message> = {
      [Symbol.asyncIterator]: () => {
        setImmediate(() => stop.abort());
        return { next: () => new Promise<never>(() => undefined) };
      },
    };
    await assert.rejects(offload.context("s2", stalled, { signal: stop.signal }), CancelledError);
    assert.deepEqual(await offload.list({ sessionId: "s2" }), []);
  });
});
