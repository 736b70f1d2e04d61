package workspaced

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const errorDomain = "workspaced"

// Violation is one field of a request that breaks a rule.
type Violation struct {
	// Field is its path in the request, for example "spec.resources.pids".
	Field string
	// Description is the rule, and what was found.
	Description string
}

// Error is what every call of this package fails with. Compare it by [errors.Is] with the sentinels, such as [ErrNotFound].
// It also matches [context.Canceled] and [context.DeadlineExceeded] when the caller's context ended the call.
type Error struct {
	// Code is the status of the call.
	Code codes.Code
	// Reason is the stable name of the cause, for example "PROCESS_NOT_FOUND". Empty when the transport failed.
	Reason string
	// Message is for people and may change.
	Message string
	// Metadata holds the values of the case.
	Metadata map[string]string
	// RequestID is what to look for in the server's log.
	RequestID string
	// RetryAfter is when to try again; 0 when the server did not say.
	RetryAfter time.Duration
	// Violations are the fields of the request that break a rule.
	Violations []Violation

	cause error
}

// Error is the code, the reason and the message.
func (e *Error) Error() string {
	name := code.Code(e.Code).String()
	if e.Reason != "" {
		name += "/" + e.Reason
	}
	return name + ": " + e.Message
}

// Unwrap is the error of the context that ended the call, or nil.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus makes status.Code and status.FromError work.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message) }

// Is tells whether the error is of a sentinel's class. [fs.ErrNotExist], [fs.ErrExist] and [fs.ErrPermission] stand for what a
// workspace says of its files.
func (e *Error) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		target = ErrFileNotFound
	case fs.ErrExist:
		target = ErrFileExists
	case fs.ErrPermission:
		target = ErrFilePermissionDenied
	}
	class, ok := target.(*class)
	return ok && class.holds(e.Code, e.Reason)
}

// convert makes an *Error of what grpc returned. The context is the caller's.
func convert(ctx context.Context, err error, trailer metadata.MD) error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	st := status.Convert(err)
	e := &Error{Code: st.Code(), Message: st.Message()}
	if ids := trailer.Get("x-request-id"); len(ids) > 0 {
		e.RequestID = ids[0]
	}
	for _, detail := range st.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == errorDomain {
				e.Reason, e.Metadata = detail.GetReason(), detail.GetMetadata()
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = detail.GetRetryDelay().AsDuration()
		case *errdetails.BadRequest:
			for _, v := range detail.GetFieldViolations() {
				e.Violations = append(e.Violations, Violation{Field: v.GetField(), Description: v.GetDescription()})
			}
		case *errdetails.RequestInfo:
			if detail.GetRequestId() != "" {
				e.RequestID = detail.GetRequestId()
			}
		}
	}
	if e.Code == codes.Canceled || e.Code == codes.DeadlineExceeded {
		e.cause = contextError(ctx, e.Code)
	}
	return e
}

func contextError(ctx context.Context, code codes.Code) error {
	err := ctx.Err()
	switch {
	case err == nil && code == codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case errors.Is(err, context.DeadlineExceeded) == (code == codes.DeadlineExceeded):
		return err
	default:
		return nil
	}
}

// interrupted is the error of a call that ended because its context did.
func interrupted(ctx context.Context) error {
	err := ctx.Err()
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Code: codes.DeadlineExceeded, Message: "the deadline of the context passed", cause: err}
	}
	return &Error{Code: codes.Canceled, Message: "the context was cancelled", cause: err}
}

// connectionLost tells whether the connection broke, or the server is going: the same call may work on the next connection.
func connectionLost(e *Error) bool {
	switch {
	case e.Reason != "":
		return errors.Is(e, ErrDraining)
	case e.Code == codes.Internal:
		// A proxy or a dying server ended the stream without a status.
		return strings.Contains(e.Message, "RST_STREAM") || strings.Contains(e.Message, "without sending trailers")
	default:
		return e.Code == codes.Unavailable || e.Code == codes.Canceled
	}
}

func invalidArgument(message string) *Error {
	return &Error{Code: codes.InvalidArgument, Message: message}
}
