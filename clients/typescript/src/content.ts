import { create } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import * as pb from "./gen/workspaced/v1/content_pb.js";
import { jsonObject, type JsonObject } from "./json.js";

/** Who wrote a message. */
export type Role = "user" | "assistant" | "system";

/** How a tool call ended. */
export type ToolResultState = "success" | "error" | "interrupted" | "denied" | "running";

/** Plain text. */
export interface TextBlock {
  readonly type: "text";
  readonly text: string;
  /** The caller's id of the block. */
  readonly id?: string | undefined;
}

/** Reasoning that a model gave beside its answer. */
export interface ThinkingBlock {
  readonly type: "thinking";
  readonly thinking: string;
  /** The provider's proof of the text, to be handed back unchanged. */
  readonly signature?: string | undefined;
  readonly id?: string | undefined;
}

/** Bytes with a media type: either `data` holds them, or `url` says where they are. */
export interface DataBlock {
  readonly type: "data";
  /** For example `image/png`. */
  readonly mediaType: string;
  readonly data?: Uint8Array | undefined;
  /** `workspace:///data/…` is a file of the workspace; any other is kept as it is and never fetched. */
  readonly url?: string | undefined;
  /** A file name for display. */
  readonly name?: string | undefined;
  readonly id?: string | undefined;
}

/** A model's request to call a tool. */
export interface ToolCallBlock {
  readonly type: "tool_call";
  /** The id that the result refers to. */
  readonly id: string;
  readonly name: string;
  readonly input: JsonObject;
  /** The arguments as the model wrote them, when they are no JSON object or must stay as they are. */
  readonly rawInput?: string | undefined;
}

/** The answer to a tool call. */
export interface ToolResultBlock {
  readonly type: "tool_result";
  /** The id of the call. */
  readonly id: string;
  readonly name: string;
  readonly output: readonly Block[];
  readonly state: ToolResultState;
}

/** A note of the agent's framework to the model. */
export interface HintBlock {
  readonly type: "hint";
  readonly content: readonly Block[];
  /** What produced the note. */
  readonly source?: string | undefined;
  readonly id?: string | undefined;
}

/** A block of a kind that this version does not know. Given back to a server, it is what it was. */
export interface UnknownBlock {
  readonly type: "unknown";
  /** The block as the API has it. */
  readonly message: pb.ContentBlock;
}

/** One piece of a message or of a tool's result; `type` tells which. */
export type Block = TextBlock | ThinkingBlock | DataBlock | ToolCallBlock | ToolResultBlock | HintBlock | UnknownBlock;

/** One turn of a conversation. */
export interface Message {
  readonly role: Role;
  readonly content: readonly Block[];
  /** The name of the author, for display. */
  readonly name?: string | undefined;
  readonly id?: string | undefined;
  /** Anything that the agent's framework keeps beside the message. */
  readonly metadata?: JsonObject | undefined;
  readonly createTime?: Date | undefined;
}

/** A message, whose content may also be a text, or hold texts. */
export type MessageInput = Omit<Message, "content"> & { readonly content: string | readonly (Block | string)[] };

const ROLES = { user: pb.Role.USER, assistant: pb.Role.ASSISTANT, system: pb.Role.SYSTEM } as const;
const STATES = {
  success: pb.ToolResultState.SUCCESS,
  error: pb.ToolResultState.ERROR,
  interrupted: pb.ToolResultState.INTERRUPTED,
  denied: pb.ToolResultState.DENIED,
  running: pb.ToolResultState.RUNNING,
} as const;

/** @internal */
export function messageToProto(message: MessageInput): pb.Message {
  const role = Object.hasOwn(ROLES, message.role) ? ROLES[message.role] : undefined;
  if (role === undefined) {
    throw new TypeError(`role ${String(message.role)} is none of ${Object.keys(ROLES).join(", ")}`);
  }
  return create(pb.MessageSchema, {
    role,
    id: message.id ?? "",
    name: message.name ?? "",
    content: blocksToProto(message.content),
    ...(message.metadata && { metadata: jsonObject(message.metadata, "metadata") }),
    ...(message.createTime && { createTime: timestampFromDate(message.createTime) }),
  });
}

/** @internal */
export function messageFromProto(message: pb.Message): Message {
  return {
    role: keyOf(ROLES, message.role) ?? "user",
    content: message.content.map(blockFromProto),
    ...(message.name !== "" && { name: message.name }),
    ...(message.id !== "" && { id: message.id }),
    ...(message.metadata && { metadata: message.metadata }),
    ...(message.createTime && { createTime: timestampDate(message.createTime) }),
  };
}

/** @internal */
export function blocksToProto(blocks: string | readonly (Block | string)[]): pb.ContentBlock[] {
  return (typeof blocks === "string" ? [blocks] : blocks).map(blockToProto);
}

/** @internal */
export function blockToProto(block: Block | string): pb.ContentBlock {
  if (typeof block === "string") {
    block = { type: "text", text: block };
  }
  switch (block.type) {
    case "text":
      return content(block.id, { case: "text", value: create(pb.TextBlockSchema, { text: block.text }) });
    case "thinking": {
      const { thinking, signature = "" } = block;
      return content(block.id, { case: "thinking", value: create(pb.ThinkingBlockSchema, { thinking, signature }) });
    }
    case "data":
      return content(block.id, { case: "data", value: dataToProto(block) });
    case "tool_call": {
      const { id, name, rawInput = "" } = block;
      const input = jsonObject(block.input, "input");
      return content("", { case: "toolCall", value: create(pb.ToolCallBlockSchema, { id, name, input, rawInput }) });
    }
    case "tool_result":
      return content("", { case: "toolResult", value: resultToProto(block) });
    case "hint": {
      const value = create(pb.HintBlockSchema, { source: block.source ?? "", content: blocksToProto(block.content) });
      return content(block.id, { case: "hint", value });
    }
    case "unknown":
      return block.message;
    default:
      throw new TypeError(`${JSON.stringify((block as { type?: unknown }).type)} is no type of a block`);
  }
}

/** @internal */
export function blockFromProto(message: pb.ContentBlock): Block {
  const id = message.id !== "" && { id: message.id };
  const { block } = message;
  switch (block.case) {
    case "text":
      return { type: "text", text: block.value.text, ...id };
    case "thinking": {
      const { thinking, signature } = block.value;
      return { type: "thinking", thinking, ...(signature !== "" && { signature }), ...id };
    }
    case "data":
      return { ...dataFromProto(block.value), ...id };
    case "toolCall": {
      const { id: call, name, input = {}, rawInput } = block.value;
      return { type: "tool_call", id: call, name, input, ...(rawInput !== "" && { rawInput }) };
    }
    case "toolResult": {
      const { id: call, name, output, state } = block.value;
      return { type: "tool_result", id: call, name, output: output.map(blockFromProto), state: stateFromProto(state) };
    }
    case "hint": {
      const { source } = block.value;
      return { type: "hint", content: block.value.content.map(blockFromProto), ...(source !== "" && { source }), ...id };
    }
    default:
      return { type: "unknown", message };
  }
}

/** @internal */
export function dataFromProto(block: pb.DataBlock): DataBlock {
  return {
    type: "data",
    mediaType: block.mediaType,
    ...(block.source.case === "bytes" && { data: block.source.value }),
    ...(block.source.case === "url" && { url: block.source.value }),
    ...(block.name !== "" && { name: block.name }),
  };
}

/** @internal */
export function resultToProto(block: ToolResultBlock): pb.ToolResultBlock {
  const state = Object.hasOwn(STATES, block.state) ? STATES[block.state] : undefined;
  if (state === undefined) {
    throw new TypeError(`state ${String(block.state)} is none of ${Object.keys(STATES).join(", ")}`);
  }
  return create(pb.ToolResultBlockSchema, { id: block.id, name: block.name, output: blocksToProto(block.output), state });
}

/** How a tool call ended; a state that this version does not know is `success`, as the API reads one that is not set.
 * @internal */
export function stateFromProto(state: pb.ToolResultState): ToolResultState {
  return keyOf(STATES, state) ?? "success";
}

function dataToProto(block: DataBlock): pb.DataBlock {
  const { mediaType, data, url, name = "" } = block;
  if ((data === undefined) === (url === undefined)) {
    throw new TypeError("a data block has either data or a url");
  }
  const source =
    data !== undefined ? ({ case: "bytes", value: data } as const) : ({ case: "url", value: url ?? "" } as const);
  return create(pb.DataBlockSchema, { mediaType, source, name });
}

function content(id: string | undefined, block: pb.ContentBlock["block"]): pb.ContentBlock {
  return create(pb.ContentBlockSchema, { id: id ?? "", block });
}

function keyOf<K extends string>(table: Readonly<Record<K, number>>, value: number): K | undefined {
  return (Object.keys(table) as K[]).find((key) => table[key] === value);
}
