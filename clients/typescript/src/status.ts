/** From the status of a call to an error of this library. */

import { fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import * as errors from "./errors.js";
import { BadRequestSchema, ErrorInfoSchema, RequestInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";

type ErrorClass = (new (message: string, details?: errors.ErrorDetails) => errors.WorkspacedError) & {
  readonly defaultCode: errors.StatusCode;
};

const DOMAIN = "workspaced";

const NAMES: Readonly<Record<Code, errors.StatusCode>> = {
  [Code.Canceled]: "CANCELLED",
  [Code.Unknown]: "UNKNOWN",
  [Code.InvalidArgument]: "INVALID_ARGUMENT",
  [Code.DeadlineExceeded]: "DEADLINE_EXCEEDED",
  [Code.NotFound]: "NOT_FOUND",
  [Code.AlreadyExists]: "ALREADY_EXISTS",
  [Code.PermissionDenied]: "PERMISSION_DENIED",
  [Code.ResourceExhausted]: "RESOURCE_EXHAUSTED",
  [Code.FailedPrecondition]: "FAILED_PRECONDITION",
  [Code.Aborted]: "ABORTED",
  [Code.OutOfRange]: "OUT_OF_RANGE",
  [Code.Unimplemented]: "UNIMPLEMENTED",
  [Code.Internal]: "INTERNAL",
  [Code.Unavailable]: "UNAVAILABLE",
  [Code.DataLoss]: "DATA_LOSS",
  [Code.Unauthenticated]: "UNAUTHENTICATED",
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

/** The error for what the transport raised. */
export function fromStatus(raised: unknown): errors.WorkspacedError {
  if (raised instanceof errors.WorkspacedError) {
    return raised;
  }
  const status = ConnectError.from(raised, Code.Unavailable);
  const code = NAMES[status.code] ?? "UNKNOWN";
  const details: errors.ErrorDetails = { code, requestId: status.metadata.get("x-request-id") ?? "" };
  if (status.cause !== undefined) {
    details.cause = status.cause;
  }
  for (const detail of status.details) {
    if ("type" in detail) {
      readDetail(details, detail.type, detail.value);
    }
  }
  const generic = BY_CODE.get(code) ?? errors.InternalError;
  let type = (details.reason !== undefined && Object.hasOwn(BY_REASON, details.reason) && BY_REASON[details.reason]) || generic;
  if (!(type === generic || type.prototype instanceof generic)) {
    type = generic; // the reason was given another code since: the code is what callers handle
  }
  return new type(status.rawMessage, details);
}

/** Whether the connection broke, or the server is going: the same call may work on the next connection. */
export function connectionLost(error: errors.WorkspacedError): boolean {
  if (error.reason !== "") {
    return error instanceof errors.DrainingError;
  }
  return error.code === "UNAVAILABLE";
}

function readDetail(details: errors.ErrorDetails, type: string, value: Uint8Array): void {
  try {
    switch (type) {
      case ErrorInfoSchema.typeName: {
        const info = fromBinary(ErrorInfoSchema, value);
        if (info.domain === DOMAIN) {
          details.reason = info.reason;
          details.metadata = info.metadata;
        }
        break;
      }
      case RetryInfoSchema.typeName: {
        const delay = fromBinary(RetryInfoSchema, value).retryDelay;
        details.retryAfterMs = delay === undefined ? 0 : Number(delay.seconds) * 1000 + delay.nanos / 1e6;
        break;
      }
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
  } catch (error) {
    if (!(error instanceof Error)) {
      throw error;
    }
    details.cause ??= error; // damaged details must not hide the status itself
  }
}
