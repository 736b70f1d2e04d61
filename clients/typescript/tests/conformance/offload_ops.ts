/** What does not fit into a model's context, and messages as JSON. */

import type { Block, Message, MessageInput, OffloadKind, ToolResultBlock, ToolResultState } from "../../src/index.js";
import { bytesOf, Sink } from "./data.js";
import { flag, optionalNumber, optionalText, register, scopes, text } from "./registry.js";

/** A block as JSON has it. */
type Json = Readonly<Record<string, unknown>>;

register({
  async offload_context(objects, args, call) {
    const messages = (args["messages"] as Json[]).map(messageFrom);
    const given = flag(args, "as_stream") === true ? once(messages) : messages;
    const options = { ...call, requestId: optionalText(args, "request_id") };
    const { path, url } = await objects.workspace(args).offload.context(text(args, "session_id"), given, options);
    return { path, url };
  },

  async offload_tool_result(objects, args, call) {
    const result = blockFrom({ type: "tool_result", ...(args["result"] as Json) }) as ToolResultBlock;
    const options = { ...call, requestId: optionalText(args, "request_id") };
    const { path, url } = await objects.workspace(args).offload.toolResult(text(args, "session_id"), result, options);
    return { path, url };
  },

  async offload_data(objects, args, call) {
    const block = await objects.workspace(args).offload.data(bytesOf(args["data"]), {
      ...call,
      mediaType: optionalText(args, "media_type"),
      name: optionalText(args, "name"),
      sha256: optionalText(args, "sha256"),
    });
    return { url: block.url, media_type: block.mediaType };
  },

  async list_offloads(objects, args, call) {
    const kind = optionalText(args, "kind") as OffloadKind | undefined;
    const options = { ...call, kind, sessionId: optionalText(args, "session_id") };
    const found = await objects.workspace(args).offload.list(options);
    return { paths: found.map(({ path }) => path).sort(), kinds: found.map((info) => info.kind).sort() };
  },

  async read_offload(objects, args, call) {
    const options = { ...call, offset: optionalNumber(args, "offset"), length: optionalNumber(args, "length") };
    const sink = new Sink();
    for await (const chunk of objects.workspace(args).offload.readStream(text(args, "path"), options)) {
      sink.add(chunk);
    }
    return sink.result();
  },

  async read_messages(objects, args, call) {
    const options = { ...call, skip: optionalNumber(args, "skip"), limit: optionalNumber(args, "limit") };
    const messages: object[] = [];
    for await (const message of objects.workspace(args).offload.messages(text(args, "path"), options)) {
      messages.push(messageOf(message));
    }
    return { messages };
  },
});

scopes.set("messages", (objects, args) => Promise.resolve(objects.workspace(args).offload.messages(text(args, "path"))));

/** MESSAGE. */
export function messageOf({ role, name = "", content }: Message): object {
  return { role, name, content: known(content) };
}

/** What a user does with blocks of a newer server: skip them. */
function known(blocks: readonly Block[]): object[] {
  return blocks.filter(({ type }) => type !== "unknown").map(blockOf);
}

function blockOf(block: Block): object {
  switch (block.type) {
    case "data": {
      const { mediaType, name = "", data, url } = block;
      const source = data === undefined ? { url } : { data: Buffer.from(data).toString("base64") };
      return { type: "data", media_type: mediaType, name, ...source };
    }
    case "tool_call":
      return { type: "tool_call", id: block.id, name: block.name, input: block.input };
    case "tool_result":
      return { ...block, output: known(block.output) };
    case "hint":
      return { type: "hint", content: known(block.content), source: block.source ?? "" };
    case "thinking":
      return { type: "thinking", thinking: block.thinking, signature: block.signature ?? "" };
    case "text":
      return { type: "text", text: block.text };
    case "unknown":
      return { type: "unknown" };
  }
}

function messageFrom(message: Json): MessageInput {
  return { ...message, content: content(message["content"]) } as unknown as MessageInput;
}

function content(blocks: unknown): string | (Block | string)[] {
  return typeof blocks === "string" ? blocks : ((blocks ?? []) as (Json | string)[]).map((block) => (typeof block === "string" ? block : blockFrom(block)));
}

function nested(blocks: unknown): Block[] {
  const given = content(blocks);
  return (typeof given === "string" ? [given] : given).map((block) => (typeof block === "string" ? { type: "text", text: block } : block));
}

function blockFrom(block: Json): Block {
  switch (block["type"]) {
    case "data": {
      const { media_type: mediaType, data, ...rest } = block;
      return { ...rest, mediaType, ...(typeof data === "string" && { data: bytesOf({ base64: data }) }) } as unknown as Block;
    }
    case "tool_result":
      return { state: "success" satisfies ToolResultState, ...block, output: nested(block["output"]) } as unknown as Block;
    case "hint":
      return { ...block, content: nested(block["content"]) } as unknown as Block;
    case "tool_call":
      return { input: {}, ...block } as unknown as Block;
    default:
      return block as unknown as Block; // what is none is refused by the library
  }
}

async function* once(messages: readonly MessageInput[]): AsyncGenerator<MessageInput, void, undefined> {
  for (const message of messages) {
    yield await Promise.resolve(message);
  }
}
