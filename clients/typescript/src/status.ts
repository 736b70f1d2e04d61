/** From the status of a call to an error of this library. */

import { fromBinary } from "@bufbuild/protobuf";
import type { IncomingHttpHeaders } from "node:http2";
import * as errors from "./errors.js";
import { BadRequestSchema, ErrorInfoSchema, RequestInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "./gen/google/rpc/status_pb.js";
import { milliseconds } from "./info.js";

type ErrorClass = (new (message: string, details?: errors.ErrorDetails) => errors.WorkspacedError) & {
  readonly defaultCode: errors.StatusCode;
};

const DOMAIN = "workspaced";

/** By number. */
export const CODES: readonly errors.StatusCode[] = [
  "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
  "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
  "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
];

/** What an answer means that did not come from a gRPC server. */
const HTTP_CODES: Readonly<Record<number, errors.StatusCode>> = {
  400: "INTERNAL",
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "UNIMPLEMENTED",
  429: "UNAVAILABLE",
  502: "UNAVAILABLE",
  503: "UNAVAILABLE",
  504: "UNAVAILABLE",
};

const BY_CODE = new Map<errors.StatusCode, ErrorClass>(
  [
    errors.InvalidArgumentError, errors.OutOfRangeError, errors.NotFoundError, errors.AlreadyExistsError,
    errors.FailedPreconditionError, errors.PermissionDeniedError, errors.UnauthenticatedError,
    errors.ResourceExhaustedError, errors.AbortedError, errors.DataLossError, errors.UnavailableError,
    errors.DeadlineExceededError, errors.CancelledError, errors.UnimplementedError, errors.InternalError,
  ].map((type) => [type.defaultCode, type]),
);

const BY_REASON: Readonly<Record<string, ErrorClass>> = {
  WORKSPACE_NOT_FOUND: errors.WorkspaceNotFoundError,
  PROCESS_NOT_FOUND: errors.ProcessNotFoundError,
  FILE_NOT_FOUND: errors.FileNotFoundError,
  LEASE_NOT_FOUND: errors.LeaseNotFoundError,
  MCP_NOT_FOUND: errors.McpNotFoundError,
  SKILL_NOT_FOUND: errors.SkillNotFoundError,
  TOOL_NOT_FOUND: errors.ToolNotFoundError,
  OFFLOAD_NOT_FOUND: errors.OffloadNotFoundError,
  MCP_EXISTS: errors.McpExistsError,
  SKILL_EXISTS: errors.SkillExistsError,
  SKILL_INVALID: errors.SkillInvalidError,
  ARCHIVE_INVALID: errors.ArchiveInvalidError,
  ARCHIVE_UNSAFE: errors.ArchiveInvalidError,
  MCP_START_FAILED: errors.McpStartFailedError,
  MCP_CONNECT_FAILED: errors.McpStartFailedError,
  MCP_PROTOCOL_ERROR: errors.McpStartFailedError,
  MCP_UNAVAILABLE: errors.McpUnavailableError,
  WORKSPACE_SPEC_MISMATCH: errors.SpecMismatchError,
  PROCESS_EXISTS: errors.ProcessExistsError,
  FILE_EXISTS: errors.FileExistsError,
  WORKSPACE_NOT_READY: errors.WorkspaceNotReadyError,
  PROCESS_START_FAILED: errors.ProcessStartFailedError,
  PROCESS_EXITED: errors.ProcessExitedError,
  STDIN_CLOSED: errors.StdinClosedError,
  BACKEND_UNAVAILABLE: errors.BackendUnavailableError,
  IMAGE_NOT_FOUND: errors.ImageNotFoundError,
  GUEST_PYTHON_MISSING: errors.GuestPythonMissingError,
  NOT_A_FILE: errors.NotAFileError,
  NOT_A_DIRECTORY: errors.NotADirectoryError,
  IS_A_DIRECTORY: errors.IsADirectoryError,
  DIRECTORY_NOT_EMPTY: errors.DirectoryNotEmptyError,
  PORT_REFUSED: errors.PortRefusedError,
  FILE_PERMISSION_DENIED: errors.FilePermissionDeniedError,
  DISK_FULL: errors.DiskFullError,
  QUOTA_EXCEEDED: errors.QuotaExceededError,
  CONTENT_CHANGED: errors.ContentChangedError,
  HASH_MISMATCH: errors.HashMismatchError,
  WORKSPACE_UNREACHABLE: errors.UnreachableError,
  SERVER_DRAINING: errors.DrainingError,
};

/** Whether these headers say how a call ended. */
export function hasStatus(headers: IncomingHttpHeaders): boolean {
  return headers["grpc-status"] !== undefined;
}

/** The error that trailers, or the headers of an answer that is none, tell of; `undefined` for OK. */
export function fromHeaders(headers: IncomingHttpHeaders): errors.WorkspacedError | undefined {
  const status = headers["grpc-status"];
  if (status === undefined) {
    const http = Number(headers[":status"]);
    return fromStatus(HTTP_CODES[http] ?? "UNKNOWN", `the server answered with HTTP status ${http}`, headers);
  }
  const code = CODES[Number(status)] ?? "UNKNOWN";
  return code === "OK" ? undefined : fromStatus(code, decodeMessage(headers["grpc-message"]), headers);
}

function fromStatus(code: errors.StatusCode, message: string, headers: IncomingHttpHeaders): errors.WorkspacedError {
  const details: errors.ErrorDetails = { code, requestId: text(headers["x-request-id"]) };
  readDetails(details, text(headers["grpc-status-details-bin"]));
  const generic = BY_CODE.get(code) ?? errors.InternalError;
  const { reason = "" } = details;
  let type = (Object.hasOwn(BY_REASON, reason) ? BY_REASON[reason] : undefined) ?? generic;
  if (!(type === generic || type.prototype instanceof generic)) {
    type = generic; // the reason was given another code since: the code is what callers handle
  }
  return new type(message, details);
}

/** Whether the connection broke, or the server is going: the same call may work on the next connection. */
export function connectionLost(error: errors.WorkspacedError): boolean {
  if (error.reason !== "") {
    return error instanceof errors.DrainingError;
  }
  return error.code === "UNAVAILABLE" || (error.code === "CANCELLED" && error.cause === undefined);
}

/** What `grpc-status-details-bin` holds: names of messages, and their bytes. Throws when it is damaged. */
export function decodeDetails(serialized: string): { type: string; value: Uint8Array }[] {
  const { details } = fromBinary(StatusSchema, Buffer.from(serialized, "base64"));
  return details.map(({ typeUrl, value }) => ({ type: typeUrl.slice(typeUrl.lastIndexOf("/") + 1), value }));
}

function readDetails(details: errors.ErrorDetails, serialized: string): void {
  try {
    for (const { type, value } of decodeDetails(serialized)) {
      readDetail(details, type, value);
    }
  } catch (cause) {
    details.cause = cause; // damaged details must not hide the status itself
  }
}

function readDetail(details: errors.ErrorDetails, type: string, value: Uint8Array): void {
  switch (type) {
    case ErrorInfoSchema.typeName: {
      const info = fromBinary(ErrorInfoSchema, value);
      if (info.domain === DOMAIN) {
        details.reason = info.reason;
        details.metadata = info.metadata;
      }
      break;
    }
    case RetryInfoSchema.typeName:
      details.retryAfterMs = milliseconds(fromBinary(RetryInfoSchema, value).retryDelay);
      break;
    case BadRequestSchema.typeName:
      details.violations = fromBinary(BadRequestSchema, value).fieldViolations.map(({ field, description }) => ({
        field,
        description,
      }));
      break;
    case RequestInfoSchema.typeName:
      details.requestId = fromBinary(RequestInfoSchema, value).requestId || details.requestId;
      break;
  }
}

function decodeMessage(message: string | string[] | undefined): string {
  const encoded = text(message);
  try {
    return decodeURIComponent(encoded);
  } catch (error) {
    if (error instanceof URIError) {
      return encoded; // not encoded as it should be: better than nothing
    }
    throw error;
  }
}

function text(value: string | string[] | undefined): string {
  return (typeof value === "string" ? value : value?.[0]) ?? "";
}
