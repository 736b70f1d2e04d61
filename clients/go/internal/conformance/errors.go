package main

import (
	"context"
	"errors"
	"io/fs"
	"net"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/workspaced/workspaced/clients/go"
)

type errorResult struct {
	Kind       string            `json:"kind"`
	Code       string            `json:"code"`
	Reason     string            `json:"reason"`
	Message    string            `json:"message"`
	Metadata   map[string]string `json:"metadata"`
	RetryAfter any               `json:"retry_after"`
	Violations []violation       `json:"violations"`
	RequestID  string            `json:"request_id"`
	Result     any               `json:"result,omitempty"`
	Start      *int64            `json:"start,omitempty"`
	End        *int64            `json:"end,omitempty"`
}

type violation struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

// errSourceFailed is the error of a source that fails on purpose.
var errSourceFailed = errors.New("the source failed")

// kinds are the classes by which errors.Is is asked, those of a reason before those of a code.
var kinds = []struct {
	name  string
	class error
}{
	{"SkillInvalid", workspaced.ErrSkillInvalid},
	{"ArchiveInvalid", workspaced.ErrArchiveInvalid},
	{"WorkspaceNotFound", workspaced.ErrWorkspaceNotFound},
	{"ProcessNotFound", workspaced.ErrProcessNotFound},
	{"FileNotFound", workspaced.ErrFileNotFound},
	{"LeaseNotFound", workspaced.ErrLeaseNotFound},
	{"McpNotFound", workspaced.ErrMCPNotFound},
	{"SkillNotFound", workspaced.ErrSkillNotFound},
	{"ToolNotFound", workspaced.ErrToolNotFound},
	{"OffloadNotFound", workspaced.ErrOffloadNotFound},
	{"SpecMismatch", workspaced.ErrSpecMismatch},
	{"ProcessExists", workspaced.ErrProcessExists},
	{"FileExists", workspaced.ErrFileExists},
	{"McpExists", workspaced.ErrMCPExists},
	{"SkillExists", workspaced.ErrSkillExists},
	{"WorkspaceNotReady", workspaced.ErrWorkspaceNotReady},
	{"ProcessStartFailed", workspaced.ErrProcessStartFailed},
	{"ProcessExited", workspaced.ErrProcessExited},
	{"StdinClosed", workspaced.ErrStdinClosed},
	{"BackendUnavailable", workspaced.ErrBackendUnavailable},
	{"ImageNotFound", workspaced.ErrImageNotFound},
	{"GuestPythonMissing", workspaced.ErrGuestPythonMissing},
	{"McpStartFailed", workspaced.ErrMCPStartFailed},
	{"NotAFile", workspaced.ErrNotAFile},
	{"NotADirectory", workspaced.ErrNotADirectory},
	{"IsADirectory", workspaced.ErrIsADirectory},
	{"DirectoryNotEmpty", workspaced.ErrDirectoryNotEmpty},
	{"PortRefused", workspaced.ErrPortRefused},
	{"FilePermissionDenied", workspaced.ErrFilePermissionDenied},
	{"DiskFull", workspaced.ErrDiskFull},
	{"QuotaExceeded", workspaced.ErrQuotaExceeded},
	{"ContentChanged", workspaced.ErrContentChanged},
	{"HashMismatch", workspaced.ErrHashMismatch},
	{"OutputLost", workspaced.ErrOutputLost},
	{"McpUnavailable", workspaced.ErrMCPUnavailable},
	{"Unreachable", workspaced.ErrUnreachable},
	{"Draining", workspaced.ErrDraining},
	{"CommandFailed", workspaced.ErrCommandFailed},

	{"InvalidArgument", workspaced.ErrInvalidArgument},
	{"OutOfRange", workspaced.ErrOutOfRange},
	{"NotFound", workspaced.ErrNotFound},
	{"AlreadyExists", workspaced.ErrAlreadyExists},
	{"FailedPrecondition", workspaced.ErrFailedPrecondition},
	{"PermissionDenied", workspaced.ErrPermissionDenied},
	{"Unauthenticated", workspaced.ErrUnauthenticated},
	{"ResourceExhausted", workspaced.ErrResourceExhausted},
	{"Aborted", workspaced.ErrAborted},
	{"DataLoss", workspaced.ErrDataLoss},
	{"Unavailable", workspaced.ErrUnavailable},
	{"DeadlineExceeded", workspaced.ErrDeadlineExceeded},
	{"Cancelled", workspaced.ErrCancelled},
	{"Unimplemented", workspaced.ErrUnimplemented},
	{"Internal", workspaced.ErrInternal},
}

func errorOf(err error) *errorResult {
	made := &errorResult{Message: err.Error(), Metadata: map[string]string{}, Violations: []violation{}}
	var known *workspaced.Error
	if errors.As(err, &known) {
		made.Code, made.Reason, made.Message = code.Code(known.Code).String(), known.Reason, known.Message
		made.RequestID, made.RetryAfter = known.RequestID, secondsOf(known.RetryAfter)
		if known.Metadata != nil {
			made.Metadata = known.Metadata
		}
		for _, v := range known.Violations {
			made.Violations = append(made.Violations, violation{v.Field, v.Description})
		}
	}
	var bug driverBug
	var lost *workspaced.OutputLostError
	var failed *workspaced.ExitError
	switch {
	case errors.As(err, &bug):
		made.Kind, made.Code = "DriverBug", "UNKNOWN"
	case errors.Is(err, errSourceFailed):
		made.Kind = "SourceFailed"
	case errors.As(err, &lost):
		made.Code, made.Reason, made.Start, made.End = "DATA_LOSS", "OUTPUT_LOST", &lost.Start, &lost.End
	case errors.As(err, &failed):
		made.Code, made.Reason = "OK", "COMMAND_FAILED"
		if failed.Result != nil {
			made.Result = runResult(failed.Result)
		}
	case errors.Is(err, workspaced.ErrClosed), errors.Is(err, net.ErrClosed):
		made.Kind, made.Code = "Closed", "CANCELLED"
	}
	for _, kind := range kinds {
		if made.Kind == "" && errors.Is(err, kind.class) {
			made.Kind = kind.name
		}
	}
	if made.Kind == "" {
		made.Kind, made.Code = foreign(err)
	}
	return made
}

// foreign is the kind of an error that is not the library's own.
func foreign(err error) (kind, code string) {
	var path *fs.PathError
	switch {
	case errors.Is(err, context.Canceled):
		return "Cancelled", "CANCELLED"
	case errors.Is(err, context.DeadlineExceeded):
		return "DeadlineExceeded", "DEADLINE_EXCEEDED"
	case errors.As(err, &path):
		return "OSError", "UNKNOWN"
	default:
		return "DriverBug", "UNKNOWN"
	}
}
