/**
 * Every error of this library.
 *
 * ```
 * WorkspacedError                       has .code .reason .message .metadata .requestId .retryAfterMs .violations
 * ├── InvalidArgumentError              a field of the request breaks a rule; .violations names it
 * │   ├── SkillInvalidError
 * │   └── ArchiveInvalidError
 * ├── OutOfRangeError                   an offset that does not exist
 * ├── NotFoundError
 * │   ├── WorkspaceNotFoundError, ProcessNotFoundError, FileNotFoundError, LeaseNotFoundError
 * │   └── McpNotFoundError, SkillNotFoundError, ToolNotFoundError, OffloadNotFoundError
 * ├── AlreadyExistsError
 * │   ├── SpecMismatchError             the workspace exists with another spec
 * │   ├── ProcessExistsError            the process exists with another spec
 * │   └── FileExistsError, McpExistsError, SkillExistsError
 * ├── FailedPreconditionError
 * │   ├── WorkspaceNotReadyError        closed, failed or being changed
 * │   ├── ProcessStartFailedError, ProcessExitedError, StdinClosedError
 * │   ├── BackendUnavailableError, ImageNotFoundError, GuestPythonMissingError
 * │   ├── NotAFileError, NotADirectoryError, IsADirectoryError, DirectoryNotEmptyError
 * │   └── PortRefusedError, McpStartFailedError
 * ├── PermissionDeniedError
 * │   └── FilePermissionDeniedError
 * ├── UnauthenticatedError
 * ├── ResourceExhaustedError
 * │   └── DiskFullError, QuotaExceededError
 * ├── AbortedError
 * │   └── ContentChangedError           the file is no longer what it was
 * ├── DataLossError
 * │   └── HashMismatchError, OutputLostError
 * ├── UnavailableError                  the server cannot be reached
 * │   ├── UnreachableError              the server cannot reach the workspace's sandbox
 * │   ├── McpUnavailableError           an MCP server cannot be used now
 * │   └── DrainingError                 the server is being stopped
 * ├── DeadlineExceededError             the call's `timeoutMs` passed (never the process's: that is an exit)
 * ├── CancelledError                    the call's `signal` was aborted; .cause is its reason
 * ├── UnimplementedError
 * ├── InternalError                     a fault of the server; any status that this version does not know
 * └── CommandFailedError                by `Result.check()`; has .result
 * ```
 *
 * A reason that this version does not know becomes the class of its status code, so a newer server never breaks a
 * `catch` of an older client.
 *
 * @module errors
 */

import type { Result } from "./result.js";

/** The name of a gRPC status. */
export type StatusCode =
  | "OK" | "CANCELLED" | "UNKNOWN" | "INVALID_ARGUMENT" | "DEADLINE_EXCEEDED" | "NOT_FOUND" | "ALREADY_EXISTS"
  | "PERMISSION_DENIED" | "RESOURCE_EXHAUSTED" | "FAILED_PRECONDITION" | "ABORTED" | "OUT_OF_RANGE" | "UNIMPLEMENTED"
  | "INTERNAL" | "UNAVAILABLE" | "DATA_LOSS" | "UNAUTHENTICATED";

/** One field of a request that breaks a rule. */
export interface Violation {
  /** Its path in the request, for example `spec.resources.pids`. */
  readonly field: string;
  /** The rule, and what was found. */
  readonly description: string;
}

/** What an error can tell beside its message. */
export interface ErrorDetails {
  code?: StatusCode | undefined;
  reason?: string | undefined;
  metadata?: Readonly<Record<string, string>> | undefined;
  requestId?: string | undefined;
  retryAfterMs?: number | undefined;
  violations?: readonly Violation[] | undefined;
  cause?: unknown;
}

/** Something failed. */
export class WorkspacedError extends Error {
  /** The code of this class, where a status does not say it. */
  static readonly defaultCode: StatusCode = "UNKNOWN";
  /** The name of a gRPC status. */
  readonly code: StatusCode;
  /** The stable name of the cause; empty when the transport failed. */
  readonly reason: string;
  /** The values that belong to the reason. */
  readonly metadata: Readonly<Record<string, string>>;
  /** What to look for in the server's log; empty when unknown. */
  readonly requestId: string;
  /** When the server asks to try again, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The fields of the request that break a rule. */
  readonly violations: readonly Violation[];

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.code = details.code ?? new.target.defaultCode;
    this.reason = details.reason ?? "";
    this.metadata = details.metadata ?? {};
    this.requestId = details.requestId ?? "";
    this.retryAfterMs = details.retryAfterMs;
    this.violations = details.violations ?? [];
  }

  /** The class, the code or reason, and the message. */
  override toString(): string {
    return `${this.name} (${this.reason === "" ? this.code : `${this.code}/${this.reason}`}): ${this.message}`;
  }
}

/** A field of the request breaks a rule. */
export class InvalidArgumentError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "INVALID_ARGUMENT";
}

/** There is no `SKILL.md` with a name and a description, or it cannot be read. */
export class SkillInvalidError extends InvalidArgumentError {}

/** The archive cannot be read, or would write outside of the skill's directory. */
export class ArchiveInvalidError extends InvalidArgumentError {}

/** An offset that does not exist. */
export class OutOfRangeError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "OUT_OF_RANGE";
}

/** It does not exist, or belongs to somebody else. */
export class NotFoundError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "NOT_FOUND";
}

/** There is no such workspace. */
export class WorkspaceNotFoundError extends NotFoundError {}

/** There is no such process, or it ended so long ago that it is no longer kept. */
export class ProcessNotFoundError extends NotFoundError {}

/** There is no such file; the workspace said so itself. */
export class FileNotFoundError extends NotFoundError {}

/** The lease has expired. */
export class LeaseNotFoundError extends NotFoundError {}

/** No MCP server of that name is declared for the agent and session. */
export class McpNotFoundError extends NotFoundError {}

/** The agent has no skill of that name. */
export class SkillNotFoundError extends NotFoundError {}

/** There is no tool of that name. */
export class ToolNotFoundError extends NotFoundError {}

/** Nothing is stored under that path. */
export class OffloadNotFoundError extends NotFoundError {}

/** It exists already. */
export class AlreadyExistsError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "ALREADY_EXISTS";
}

/** The workspace exists with another spec. */
export class SpecMismatchError extends AlreadyExistsError {}

/** The process exists with another spec. */
export class ProcessExistsError extends AlreadyExistsError {}

/** The file exists. */
export class FileExistsError extends AlreadyExistsError {}

/** Another MCP server has the name. */
export class McpExistsError extends AlreadyExistsError {}

/** Another skill has the name; `replace: true` replaces it. */
export class SkillExistsError extends AlreadyExistsError {}

/** Something has to change first. */
export class FailedPreconditionError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "FAILED_PRECONDITION";
}

/** The workspace is closed, failed or being changed; `initialize` makes it ready. */
export class WorkspaceNotReadyError extends FailedPreconditionError {}

/** The program could not be started: not found, not executable, no such directory or user. */
export class ProcessStartFailedError extends FailedPreconditionError {}

/** The process has ended. */
export class ProcessExitedError extends FailedPreconditionError {}

/** Standard input is closed, or nobody reads it any more. */
export class StdinClosedError extends FailedPreconditionError {}

/** The backend cannot be used on this server; `Client.serverInfo` says why. */
export class BackendUnavailableError extends FailedPreconditionError {}

/** The image does not exist, or may not be pulled. */
export class ImageNotFoundError extends FailedPreconditionError {}

/** The image has no python3; `installPython: true` installs it. */
export class GuestPythonMissingError extends FailedPreconditionError {}

/** An MCP server could not be started, or does not speak MCP; `metadata.stderr_tail` may say why. */
export class McpStartFailedError extends FailedPreconditionError {}

/** It is not a regular file. */
export class NotAFileError extends FailedPreconditionError {}

/** It, or a part of its path, is not a directory. */
export class NotADirectoryError extends FailedPreconditionError {}

/** It is a directory. */
export class IsADirectoryError extends FailedPreconditionError {}

/** The directory has entries; `recursive: true` removes them too. */
export class DirectoryNotEmptyError extends FailedPreconditionError {}

/** Nothing listens on the port. */
export class PortRefusedError extends FailedPreconditionError {}

/** The token may not do this. */
export class PermissionDeniedError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "PERMISSION_DENIED";
}

/** The workspace's user may not do this to the file. */
export class FilePermissionDeniedError extends PermissionDeniedError {}

/** No token, or one that the server does not know. */
export class UnauthenticatedError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "UNAUTHENTICATED";
}

/** A limit was reached. */
export class ResourceExhaustedError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "RESOURCE_EXHAUSTED";
}

/** The workspace's disk is full. */
export class DiskFullError extends ResourceExhaustedError {}

/** A quota of the server or the provider was reached. */
export class QuotaExceededError extends ResourceExhaustedError {}

/** It changed in the meantime. */
export class AbortedError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "ABORTED";
}

/** The file is no longer what it was. */
export class ContentChangedError extends AbortedError {}

/** Data is damaged or gone. */
export class DataLossError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "DATA_LOSS";
}

/** The content does not have the promised hash; nothing was written. */
export class HashMismatchError extends DataLossError {}

/** Output between two offsets is no longer kept. Iteration can go on after it. */
export class OutputLostError extends DataLossError {
  constructor(
    /** Offset of the first byte that is lost. */
    readonly start: number,
    /** Offset of the first byte that follows. */
    readonly end: number,
  ) {
    super(`${end - start} bytes of output, from offset ${start}, are no longer kept`, { reason: "OUTPUT_LOST" });
  }
}

/** The server cannot be reached. What was called may or may not have happened. */
export class UnavailableError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "UNAVAILABLE";
}

/** An MCP server cannot be used now; `retryAfterMs` says when it is tried again. */
export class McpUnavailableError extends UnavailableError {}

/** The server cannot reach the workspace's sandbox; `initialize` recovers it. */
export class UnreachableError extends UnavailableError {}

/** The server is being stopped. */
export class DrainingError extends UnavailableError {}

/** The call took longer than its `timeoutMs`. */
export class DeadlineExceededError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "DEADLINE_EXCEEDED";
}

/** The call was cancelled: its `signal` was aborted, whose reason is the `cause`, or the client was closed. */
export class CancelledError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "CANCELLED";
}

/** The server does not have this, or not yet. */
export class UnimplementedError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "UNIMPLEMENTED";
}

/** A fault of the server. */
export class InternalError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "INTERNAL";
}

/** A command did not exit with 0. The call itself went well, so `code` is `OK`. */
export class CommandFailedError extends WorkspacedError {
  static override readonly defaultCode: StatusCode = "OK";

  constructor(
    message: string,
    /** What it wrote, and how it ended. */
    readonly result: Result,
  ) {
    super(message, { reason: "COMMAND_FAILED" });
  }
}
