/** Writing a file: as a whole, going on where the workspace has it. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions, Connection } from "./connection.js";
import { WorkspacedError } from "./errors.js";
import { fileInfo, type FileInfo } from "./file-info.js";
import { FileService, type WriteFileHeaderSchema, type WriteFileRequestSchema } from "./gen/workspaced/v1/file_pb.js";
import { Repair } from "./repair.js";
import { send } from "./send.js";
import type { Source } from "./source.js";
import { newId } from "./spec.js";

/** Called with the bytes done, and the bytes that there are when that is known. */
export type Transferred = (done: number, total: number | undefined) => void;

export type WriteHeader = Exclude<MessageInitShape<typeof WriteFileHeaderSchema>, { $typeName: string }>;

type Request = MessageInitShape<typeof WriteFileRequestSchema>;

const DISCARD_MS = 5_000;

/** Replaces a file by the bytes of a source. When that fails, what was sent is forgotten, beside the caller. */
export async function writeFile(
  connection: Connection,
  header: WriteHeader,
  source: Source,
  options: CallOptions,
  onProgress: Transferred | undefined,
): Promise<FileInfo> {
  if (!source.repeatable) {
    return await write(connection, header, source, 0, options, onProgress);
  }
  const upload = { ...header, uploadId: newId() };
  const repair = new Repair(connection, options);
  let offset = 0;
  try {
    for (;;) {
      try {
        return await write(connection, upload, source, offset, repair.options, onProgress);
      } catch (error) {
        await repair.pause(error);
      }
      try {
        const there = Number((await ask(connection, { ...upload, queryOffset: true }, repair.options)).nextOffset);
        if (there > offset) {
          repair.progress();
        }
        offset = there;
      } catch (error) {
        await repair.pause(error);
      }
    }
  } catch (error) {
    connection.tidy(discard(connection, upload));
    throw error;
  }
}

async function write(
  connection: Connection,
  header: WriteHeader,
  source: Source,
  offset: number,
  options: CallOptions,
  onProgress: Transferred | undefined,
): Promise<FileInfo> {
  const response = await send(
    connection,
    FileService.method.writeFile,
    {
      first: request({ ...header, offset: BigInt(offset) }),
      chunk: (bytes): Request => ({ part: { case: "data", value: bytes } }),
      source,
      offset,
      onSent: onProgress && ((done) => onProgress(done, source.size)),
    },
    options,
  );
  return fileInfo(response.info);
}

/** Removes what an upload that is given up has left; what cannot be reached removes it after an hour. */
async function discard(connection: Connection, header: WriteHeader): Promise<void> {
  const { workspaceId = "", path = "", uploadId = "" } = header;
  try {
    await ask(connection, { workspaceId, path, uploadId, discard: true }, { timeoutMs: DISCARD_MS, tidying: true });
  } catch (error) {
    if (!(error instanceof WorkspacedError)) {
      throw error;
    } // nothing may be left, or the server may be gone
  }
}

function ask(connection: Connection, header: WriteHeader, options: CallOptions & { tidying?: boolean }) {
  async function* only(): AsyncGenerator<Request, void, undefined> {
    yield await Promise.resolve(request(header));
  }
  return connection.clientStream(FileService.method.writeFile, only(), options);
}

function request(header: WriteHeader): Request {
  return { part: { case: "header", value: header } };
}
