/** What is known of files, and what happens to them. */

import { CHANGE_KINDS, FILE_TYPES, type ChangeKind, type FileType } from "./enums.js";
import type { FileInfo as FileMessage, WatchFilesResponse } from "./gen/workspaced/v1/file_pb.js";
import { when } from "./info.js";

/** A file, directory or link. */
export interface FileInfo {
  /** Relative to the workspace's directory when it is inside, else absolute. */
  readonly path: string;
  readonly type: FileType;
  /** In bytes. */
  readonly size: number;
  /** Permission bits. */
  readonly mode: number;
  /** When its content changed last. */
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

/** A change of a file. */
export interface FileChange {
  readonly kind: ChangeKind;
  readonly path: string;
  /** The new path, with MOVED; else empty. */
  readonly to: string;
  /** What it is, as far as known. */
  readonly type: FileType;
}

/** The watch stands: every later change is reported. It comes again after a broken connection: list again then. */
export interface WatchReady {
  readonly kind: "READY";
  /** Changes are found by looking every second. */
  readonly polling: boolean;
}

/** Changes came faster than they could be reported: list again. */
export interface WatchOverflow {
  readonly kind: "OVERFLOW";
}

/** What a watch tells; `kind` says what it is. */
export type WatchEvent = WatchReady | WatchOverflow | FileChange;

/** From the message. */
export function fileInfo(proto: FileMessage | undefined): FileInfo {
  return {
    path: proto?.path ?? "",
    type: FILE_TYPES.name(proto?.type ?? 0),
    size: Number(proto?.size ?? 0n),
    mode: proto?.mode ?? 0,
    modifyTime: when(proto?.modifyTime),
    user: proto?.user ?? "",
    group: proto?.group ?? "",
    linkTarget: proto?.linkTarget ?? "",
    sha256: proto?.sha256 ?? "",
    rawPath: proto?.rawPath ?? new Uint8Array(),
  };
}

/** From the message; nothing for one that only shows that the call lives, or that this version does not know. */
export function watchEvent({ event }: WatchFilesResponse): WatchEvent | undefined {
  switch (event.case) {
    case "ready":
      return { kind: "READY", polling: event.value.polling };
    case "overflow":
      return { kind: "OVERFLOW" };
    case "change": {
      const { kind, path, to, type } = event.value;
      return { kind: CHANGE_KINDS.name(kind), path, to, type: FILE_TYPES.name(type) };
    }
    default:
      return undefined;
  }
}
