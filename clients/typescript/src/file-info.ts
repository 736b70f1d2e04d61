import { timestampDate } from "@bufbuild/protobuf/wkt";
import * as pb from "./gen/workspaced/v1/file_pb.js";

/** What a file is; `unknown` is what a newer server knows and this version does not. */
export type FileType = "file" | "directory" | "symlink" | "other" | "unknown";

/** A file, directory or link. */
export interface FileInfo {
  /** Relative to the workspace's directory when it is inside, else absolute. */
  readonly path: string;
  readonly type: FileType;
  /** In bytes. */
  readonly size: number;
  /** Permission bits. */
  readonly mode: number;
  /** When its content changed last, to the millisecond. */
  readonly modifyTime: Date | undefined;
  /** The name of its owner, or the uid. */
  readonly user: string;
  /** The name of its group, or the gid. */
  readonly group: string;
  /** Where a link leads; empty for all else. */
  readonly linkTarget: string;
  /** The SHA-256 of its content in hexadecimal, when it was asked for; else empty. */
  readonly sha256: string;
  /** The path's bytes when they are not UTF-8; else empty. */
  readonly rawPath: Uint8Array;
}

/**
 * What a watch tells; `kind` says what it is.
 *
 * * `ready`: the watch stands, every later change is reported. It comes again after a broken connection, when changes
 *   may have been missed: list again then. With `polling` changes are found once a second.
 * * `overflow`: changes came faster than they could be reported: list again.
 * * all else: a change of a file.
 */
export type WatchEvent =
  | { readonly kind: "ready"; readonly polling: boolean }
  | { readonly kind: "overflow" }
  | FileChange;

/** A change of a file. */
export interface FileChange {
  readonly kind: "created" | "modified" | "deleted" | "moved" | "unknown";
  readonly path: string;
  /** The new path of what was `moved`; else empty. */
  readonly to: string;
  /** What it is, as far as known. */
  readonly type: FileType;
}

const TYPES: Readonly<Record<number, FileType>> = {
  [pb.FileType.FILE]: "file",
  [pb.FileType.DIRECTORY]: "directory",
  [pb.FileType.SYMLINK]: "symlink",
  [pb.FileType.OTHER]: "other",
};
const KINDS: Readonly<Record<number, FileChange["kind"]>> = {
  [pb.FileChange_Kind.CREATED]: "created",
  [pb.FileChange_Kind.MODIFIED]: "modified",
  [pb.FileChange_Kind.DELETED]: "deleted",
  [pb.FileChange_Kind.MOVED]: "moved",
};

/** @internal */
export function fileInfo(info: pb.FileInfo | undefined): FileInfo {
  const { path = "", type = 0, size = 0n, mode = 0, modifyTime, user = "", group = "", linkTarget = "" } = info ?? {};
  return {
    path,
    type: TYPES[type] ?? "unknown",
    size: Number(size),
    mode,
    modifyTime: modifyTime && timestampDate(modifyTime),
    user,
    group,
    linkTarget,
    sha256: info?.sha256 ?? "",
    rawPath: info?.rawPath ?? new Uint8Array(),
  };
}

/** What an event of the API tells; nothing for one that only shows that the call lives.
 * @internal */
export function watchEvent({ event }: pb.WatchFilesResponse): WatchEvent | undefined {
  switch (event.case) {
    case "ready":
      return { kind: "ready", polling: event.value.polling };
    case "overflow":
      return { kind: "overflow" };
    case "change": {
      const { kind, path, to, type } = event.value;
      return { kind: KINDS[kind] ?? "unknown", path, to, type: TYPES[type] ?? "unknown" };
    }
    default:
      return undefined;
  }
}
