/** What does not fit into a model's context, kept in the workspace. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions, Connection } from "./connection.js";
import { dataFromProto, messageFromProto, messageToProto, resultToProto } from "./content.js";
import type { DataBlock, Message, MessageInput, ToolResultBlock } from "./content.js";
import type { Message as PbMessage } from "./gen/workspaced/v1/content_pb.js";
import {
  OffloadKind as PbKind, OffloadService,
  type Offload as OffloadMessage, type OffloadContextRequestSchema, type OffloadDataRequestSchema, type ReadOffloadRequestSchema,
} from "./gen/workspaced/v1/offload_pb.js";
import { generatedStream, joined, readable } from "./generated-stream.js";
import { when } from "./info.js";
import type { MessageStream } from "./message-stream.js";
import { collected } from "./paging.js";
import { send, sendAll } from "./send.js";
import { interruptible, sourceOf, type Data } from "./source.js";
import { newId } from "./spec.js";
import { toolResultBlock, type ToolResult } from "./tools.js";
import { unsigned } from "./unsigned.js";

/** What an offload holds. */
export type OffloadKind = "context" | "tool_result" | "data";

/** Something stored. */
export interface OffloadInfo {
  readonly kind: OffloadKind;
  /** Where the agent's file tools find it. */
  readonly path: string;
  /** The same as a `workspace:///…` URL. */
  readonly url: string;
  /** In bytes. */
  readonly size: number;
  readonly mediaType: string;
  /** Empty for data, and for the session without an id. */
  readonly sessionId: string;
  /** The id of the tool call, of a tool result. */
  readonly toolCallId: string;
  /** The SHA-256 of data in hexadecimal; else empty. */
  readonly sha256: string;
  readonly updateTime: Date | undefined;
}

/** A part of something stored. */
export interface ReadOffloadOptions extends CallOptions {
  /** The first byte (0); beyond the end is `OutOfRangeError`. */
  offset?: number | undefined;
  /** At most so many bytes; absent: to the end. */
  length?: number | undefined;
}

type ContextStart = { workspaceId: string; sessionId: string; requestId: string };
type Messages = Iterable<PbMessage> | AsyncIterable<PbMessage>;
type ContextRequest = MessageInitShape<typeof OffloadContextRequestSchema>;
type DataRequest = MessageInitShape<typeof OffloadDataRequestSchema>;
type ReadRequest = MessageInitShape<typeof ReadOffloadRequestSchema>;

const KINDS: Readonly<Record<OffloadKind, PbKind>> = {
  context: PbKind.CONTEXT,
  tool_result: PbKind.TOOL_RESULT,
  data: PbKind.DATA,
};

/**
 * Stores contexts, tool results and data, lists them and reads them back. What a method resolved with is durable. A
 * call that fails or is cancelled before all was sent has stored nothing.
 */
export class Offload {
  readonly #connection: Connection;
  readonly #workspaceId: string;

  /** @internal */
  constructor(connection: Connection, workspaceId: string) {
    this.#connection = connection;
    this.#workspaceId = workspaceId;
  }

  /**
   * Appends messages to the context of a session; resolves with the file that holds it, one message a line. Data
   * blocks with bytes are moved to files of their own. With a `requestId` a repeated call appends once.
   *
   * When the connection breaks it is made again, unless `messages` is an asynchronous iterable, which gives them once:
   * then it is `UnavailableError`.
   */
  async context(
    sessionId: string,
    messages: Iterable<MessageInput> | AsyncIterable<MessageInput>,
    options: { requestId?: string | undefined } & CallOptions = {},
  ): Promise<OffloadInfo> {
    const { signal, timeoutMs, requestId } = options;
    const start = { workspaceId: this.#workspaceId, sessionId, requestId: requestId ?? newId() };
    if (Symbol.asyncIterator in messages) {
      return await this.#append(start, (over) => once(messages, over), { signal, timeoutMs });
    }
    const prepared = [...messages].map(messageToProto);
    return await this.#connection.repeat((left) => this.#append(start, () => prepared, { signal, timeoutMs: left }), options);
  }

  /** Stores the output of a tool call, as {@link Tools.call} gave it or as a block; resolves with the file. */
  async toolResult(
    sessionId: string,
    result: ToolResult | ToolResultBlock,
    options: { requestId?: string | undefined } & CallOptions = {},
  ): Promise<OffloadInfo> {
    const { signal, timeoutMs, requestId } = options;
    const request = {
      workspaceId: this.#workspaceId,
      sessionId,
      result: resultToProto(result.type === "result" ? toolResultBlock(result) : result),
      requestId: requestId ?? newId(),
    };
    const method = OffloadService.method.offloadToolResult;
    return offloadInfo((await this.#connection.unary(method, request, { signal, timeoutMs, repeatable: true })).offload);
  }

  /** Stores bytes under their hash; resolves with a data block that refers to them. `sha256` is the hash that they must
   * have: `HashMismatchError`. Not repeated. */
  async data(
    data: Data,
    options: {
      mediaType?: string | undefined;
      name?: string | undefined;
      sha256?: string | undefined;
    } & CallOptions = {},
  ): Promise<DataBlock> {
    const { mediaType = "", name = "", sha256 = "", signal, timeoutMs } = options;
    const first: DataRequest = {
      part: { case: "start", value: { workspaceId: this.#workspaceId, mediaType, name, sha256 } },
    };
    const chunk = (value: Uint8Array): DataRequest => ({ part: { case: "chunk", value } });
    const sent = { first, chunk, source: sourceOf(data) };
    const response = await send(this.#connection, OffloadService.method.offloadData, sent, { signal, timeoutMs });
    return response.data === undefined ? { type: "data", mediaType, url: "" } : dataFromProto(response.data);
  }

  /** What is stored, by path: everything, or the contexts and tool results of a session. */
  async list(
    options: { sessionId?: string | undefined; kind?: OffloadKind | undefined } & CallOptions = {},
  ): Promise<OffloadInfo[]> {
    const { sessionId, kind } = options;
    const request = {
      workspaceId: this.#workspaceId,
      ...(sessionId !== undefined && { sessionId }),
      ...(kind !== undefined && { kind: KINDS[kind] }),
      pageSize: 1000,
    };
    const method = OffloadService.method.listOffloads;
    const page = (pageToken: string, call: CallOptions) => this.#connection.unary(method, { ...request, pageToken }, call);
    return await collected(page, options, ({ offloads }) => offloads.map(offloadInfo));
  }

  /** The bytes of something stored, by its path or URL. Rejects with `OffloadNotFoundError`. */
  async read(path: string, options: ReadOffloadOptions = {}): Promise<Uint8Array> {
    return await joined(this.chunks(path, options));
  }

  /** The same as they come. A broken connection is `UnavailableError`: read again from the next offset. */
  readStream(path: string, options: ReadOffloadOptions = {}): ReadableStream<Uint8Array> {
    return readable(this.chunks(path, options));
  }

  /** The same as an iterable of chunks of at most 256 KiB. */
  chunks(path: string, options: ReadOffloadOptions = {}): MessageStream<Uint8Array> {
    const { offset = 0, length } = options;
    const value = { offset: unsigned("offset", offset), ...(length !== undefined && { length: unsigned("length", length) }) };
    const parts = this.#parts.bind(this, { path, range: { case: "bytes", value } });
    return generatedStream(async function* (signal) {
      for await (const part of parts({ ...options, signal })) {
        if (part.case === "chunk") {
          yield part.value.data;
        }
      }
    }, options.signal);
  }

  /** The messages of a context, in order, without the first `skip`, and at most `limit` (absent: all). */
  messages(
    path: string,
    options: { skip?: number | undefined; limit?: number | undefined } & CallOptions = {},
  ): MessageStream<Message> {
    const { skip = 0, limit = 0 } = options;
    const value = { skip: unsigned("skip", skip), limit: unsigned("limit", limit) };
    const parts = this.#parts.bind(this, { path, range: { case: "messages", value } });
    return generatedStream(async function* (signal) {
      for await (const part of parts({ ...options, signal })) {
        if (part.case === "message" && part.value.message !== undefined) {
          yield messageFromProto(part.value.message);
        }
      }
    }, options.signal);
  }

  async #append(start: ContextStart, messages: (signal: AbortSignal) => Messages, options: CallOptions): Promise<OffloadInfo> {
    async function* requests(signal: AbortSignal): AsyncGenerator<ContextRequest, void, undefined> {
      yield { part: { case: "start", value: start } };
      for await (const message of messages(signal)) {
        yield { part: { case: "message", value: message } };
      }
    }
    return offloadInfo((await sendAll(this.#connection, OffloadService.method.offloadContext, requests, options)).offload);
  }

  async *#parts(request: Omit<Exclude<ReadRequest, { $typeName: string }>, "workspaceId">, { signal, timeoutMs }: CallOptions) {
    const whole = { ...request, workspaceId: this.#workspaceId };
    const method = OffloadService.method.readOffload;
    for await (const { part } of this.#connection.serverStream(method, whole, { signal, timeoutMs })) {
      yield part;
    }
  }
}

async function* once(messages: AsyncIterable<MessageInput>, signal: AbortSignal): AsyncGenerator<PbMessage, void, undefined> {
  for await (const message of interruptible(messages[Symbol.asyncIterator](), signal)) {
    yield messageToProto(message);
  }
}

function offloadInfo(proto: OffloadMessage | undefined): OffloadInfo {
  return {
    kind: proto?.kind === PbKind.CONTEXT ? "context" : proto?.kind === PbKind.TOOL_RESULT ? "tool_result" : "data",
    path: proto?.path ?? "",
    url: proto?.url ?? "",
    size: Number(proto?.sizeBytes ?? 0n),
    mediaType: proto?.mediaType ?? "",
    sessionId: proto?.sessionId ?? "",
    toolCallId: proto?.toolCallId ?? "",
    sha256: proto?.sha256 ?? "",
    updateTime: when(proto?.updateTime),
  };
}
