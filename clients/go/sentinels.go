package workspaced

import (
	"errors"
	"slices"

	"google.golang.org/grpc/codes"
)

// ErrClosed is the use of a client, a handle or a connection after it was closed. The error is an [*Error] too.
var ErrClosed = errors.New("workspaced: closed")

// class is a sentinel for [errors.Is]: a status code, and the reasons of it that are meant (none: all).
type class struct {
	name    string
	code    codes.Code
	reasons []string
}

func newClass(name string, code codes.Code, reasons ...string) error {
	return &class{name: name, code: code, reasons: reasons}
}

// Error is the class in words.
func (c *class) Error() string { return "workspaced: " + c.name }

func (c *class) holds(code codes.Code, reason string) bool {
	if c.code == codes.Internal && len(c.reasons) == 0 && !slices.Contains(namedCodes, code) {
		return true // a status that this version does not know
	}
	return c.code == code && (len(c.reasons) == 0 || slices.Contains(c.reasons, reason))
}

var namedCodes = []codes.Code{
	codes.InvalidArgument, codes.OutOfRange, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition,
	codes.PermissionDenied, codes.Unauthenticated, codes.ResourceExhausted, codes.Aborted, codes.DataLoss,
	codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unimplemented, codes.Internal, codes.OK,
}

// Classes of errors by status code. A reason that this version does not know still belongs to the class of its code.
var (
	// ErrInvalidArgument: a field of the request breaks a rule; Error.Violations names it.
	ErrInvalidArgument = newClass("invalid argument", codes.InvalidArgument)
	// ErrOutOfRange: an offset that does not exist.
	ErrOutOfRange = newClass("out of range", codes.OutOfRange)
	// ErrNotFound: it does not exist, or belongs to somebody else.
	ErrNotFound = newClass("not found", codes.NotFound)
	// ErrAlreadyExists: it exists already.
	ErrAlreadyExists = newClass("already exists", codes.AlreadyExists)
	// ErrFailedPrecondition: something has to change first.
	ErrFailedPrecondition = newClass("failed precondition", codes.FailedPrecondition)
	// ErrPermissionDenied: the token may not do this.
	ErrPermissionDenied = newClass("permission denied", codes.PermissionDenied)
	// ErrUnauthenticated: no token, or one that the server does not know.
	ErrUnauthenticated = newClass("unauthenticated", codes.Unauthenticated)
	// ErrResourceExhausted: a limit was reached.
	ErrResourceExhausted = newClass("resource exhausted", codes.ResourceExhausted)
	// ErrAborted: it changed in the meantime.
	ErrAborted = newClass("aborted", codes.Aborted)
	// ErrDataLoss: data is damaged or gone.
	ErrDataLoss = newClass("data loss", codes.DataLoss)
	// ErrUnavailable: the server cannot be reached. What was called may or may not have happened.
	ErrUnavailable = newClass("unavailable", codes.Unavailable)
	// ErrDeadlineExceeded: the call took longer than its context or the client allows. Never the time limit of a process.
	ErrDeadlineExceeded = newClass("deadline exceeded", codes.DeadlineExceeded)
	// ErrCancelled: the call was cancelled.
	ErrCancelled = newClass("cancelled", codes.Canceled)
	// ErrUnimplemented: the server does not have this, or not yet.
	ErrUnimplemented = newClass("unimplemented", codes.Unimplemented)
	// ErrInternal: a fault of the server, or a status that this version does not know.
	ErrInternal = newClass("internal", codes.Internal)
)

// Classes of errors by reason. Each belongs to the class of its status code too.
var (
	// ErrSkillInvalid: there is no SKILL.md with a name and a description, or it cannot be read.
	ErrSkillInvalid = newClass("skill invalid", codes.InvalidArgument, "SKILL_INVALID")
	// ErrArchiveInvalid: the archive cannot be read, or would write outside of the skill's directory.
	ErrArchiveInvalid = newClass("archive invalid", codes.InvalidArgument, "ARCHIVE_INVALID", "ARCHIVE_UNSAFE")

	// ErrWorkspaceNotFound: there is no such workspace.
	ErrWorkspaceNotFound = newClass("workspace not found", codes.NotFound, "WORKSPACE_NOT_FOUND")
	// ErrProcessNotFound: there is no such process, or it ended so long ago that it is no longer kept.
	ErrProcessNotFound = newClass("process not found", codes.NotFound, "PROCESS_NOT_FOUND")
	// ErrFileNotFound: there is no such file; the workspace said so itself.
	ErrFileNotFound = newClass("file not found", codes.NotFound, "FILE_NOT_FOUND")
	// ErrLeaseNotFound: the lease has expired.
	ErrLeaseNotFound = newClass("lease not found", codes.NotFound, "LEASE_NOT_FOUND")
	// ErrMCPNotFound: no MCP server of that name is declared for the agent and session.
	ErrMCPNotFound = newClass("MCP server not found", codes.NotFound, "MCP_NOT_FOUND")
	// ErrSkillNotFound: the agent has no skill of that name.
	ErrSkillNotFound = newClass("skill not found", codes.NotFound, "SKILL_NOT_FOUND")
	// ErrToolNotFound: there is no tool of that name.
	ErrToolNotFound = newClass("tool not found", codes.NotFound, "TOOL_NOT_FOUND")
	// ErrOffloadNotFound: nothing is stored under that path.
	ErrOffloadNotFound = newClass("offload not found", codes.NotFound, "OFFLOAD_NOT_FOUND")

	// ErrSpecMismatch: the workspace exists with another spec.
	ErrSpecMismatch = newClass("spec mismatch", codes.AlreadyExists, "WORKSPACE_SPEC_MISMATCH")
	// ErrProcessExists: the process exists with another spec.
	ErrProcessExists = newClass("process exists", codes.AlreadyExists, "PROCESS_EXISTS")
	// ErrFileExists: the file exists.
	ErrFileExists = newClass("file exists", codes.AlreadyExists, "FILE_EXISTS")
	// ErrMCPExists: another MCP server has the name.
	ErrMCPExists = newClass("MCP server exists", codes.AlreadyExists, "MCP_EXISTS")
	// ErrSkillExists: another skill has the name.
	ErrSkillExists = newClass("skill exists", codes.AlreadyExists, "SKILL_EXISTS")

	// ErrWorkspaceNotReady: the workspace is closed, failed or being changed; Client.Initialize makes it ready.
	ErrWorkspaceNotReady = newClass("workspace not ready", codes.FailedPrecondition, "WORKSPACE_NOT_READY")
	// ErrProcessStartFailed: the program could not be started: not found, not executable, no such directory or user.
	ErrProcessStartFailed = newClass("process start failed", codes.FailedPrecondition, "PROCESS_START_FAILED")
	// ErrProcessExited: the process has ended.
	ErrProcessExited = newClass("process exited", codes.FailedPrecondition, "PROCESS_EXITED")
	// ErrStdinClosed: standard input is closed, or nobody reads it any more.
	ErrStdinClosed = newClass("standard input closed", codes.FailedPrecondition, "STDIN_CLOSED")
	// ErrBackendUnavailable: the backend cannot be used on this server; Client.ServerInfo says why.
	ErrBackendUnavailable = newClass("backend unavailable", codes.FailedPrecondition, "BACKEND_UNAVAILABLE")
	// ErrImageNotFound: the image does not exist, or may not be pulled.
	ErrImageNotFound = newClass("image not found", codes.FailedPrecondition, "IMAGE_NOT_FOUND")
	// ErrGuestPythonMissing: the image has no python3; InitializeOptions.InstallPython installs it.
	ErrGuestPythonMissing = newClass("guest python missing", codes.FailedPrecondition, "GUEST_PYTHON_MISSING")
	// ErrMCPStartFailed: an MCP server could not be started, or does not speak MCP; Metadata["stderr_tail"] may say why.
	ErrMCPStartFailed = newClass("MCP server start failed", codes.FailedPrecondition,
		"MCP_START_FAILED", "MCP_CONNECT_FAILED", "MCP_PROTOCOL_ERROR")
	// ErrNotAFile: it is not a regular file.
	ErrNotAFile = newClass("not a file", codes.FailedPrecondition, "NOT_A_FILE")
	// ErrNotADirectory: it, or a part of its path, is not a directory.
	ErrNotADirectory = newClass("not a directory", codes.FailedPrecondition, "NOT_A_DIRECTORY")
	// ErrIsADirectory: it is a directory.
	ErrIsADirectory = newClass("is a directory", codes.FailedPrecondition, "IS_A_DIRECTORY")
	// ErrDirectoryNotEmpty: the directory has entries.
	ErrDirectoryNotEmpty = newClass("directory not empty", codes.FailedPrecondition, "DIRECTORY_NOT_EMPTY")
	// ErrPortRefused: nothing listens on the port.
	ErrPortRefused = newClass("port refused", codes.FailedPrecondition, "PORT_REFUSED")

	// ErrFilePermissionDenied: the workspace's user may not do this to the file.
	ErrFilePermissionDenied = newClass("file permission denied", codes.PermissionDenied, "FILE_PERMISSION_DENIED")
	// ErrDiskFull: the workspace's disk is full.
	ErrDiskFull = newClass("disk full", codes.ResourceExhausted, "DISK_FULL")
	// ErrQuotaExceeded: a quota of the server or the provider was reached.
	ErrQuotaExceeded = newClass("quota exceeded", codes.ResourceExhausted, "QUOTA_EXCEEDED")
	// ErrContentChanged: the file is no longer what it was.
	ErrContentChanged = newClass("content changed", codes.Aborted, "CONTENT_CHANGED")
	// ErrHashMismatch: the content does not have the promised hash; nothing was written.
	ErrHashMismatch = newClass("hash mismatch", codes.DataLoss, "HASH_MISMATCH")
	// ErrOutputLost: output between two offsets is no longer kept. The error is an *OutputLostError.
	ErrOutputLost = newClass("output lost", codes.DataLoss, "OUTPUT_LOST")

	// ErrMCPUnavailable: an MCP server cannot be used now; Error.RetryAfter says when it is tried again.
	ErrMCPUnavailable = newClass("MCP server unavailable", codes.Unavailable, "MCP_UNAVAILABLE")
	// ErrUnreachable: the server cannot reach the workspace's sandbox; Client.Initialize recovers it.
	ErrUnreachable = newClass("workspace unreachable", codes.Unavailable, "WORKSPACE_UNREACHABLE")
	// ErrDraining: the server is being stopped.
	ErrDraining = newClass("server draining", codes.Unavailable, "SERVER_DRAINING")

	// ErrCommandFailed: a command did not exit with 0. The error is an *ExitError; the call itself went well.
	ErrCommandFailed = newClass("command failed", codes.OK, "COMMAND_FAILED")
)
