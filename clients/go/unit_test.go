package workspaced

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestServiceConfigIsThePublishedOne(t *testing.T) {
	published, err := os.ReadFile(filepath.Join("..", "service_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if string(published) != serviceConfig {
		t.Error("clients/go/service_config.json is no copy of clients/service_config.json")
	}
}

func statusError(t *testing.T, code codes.Code, reason string) error {
	t.Helper()
	st, err := status.New(code, "what happened").WithDetails(
		&errdetails.ErrorInfo{Domain: errorDomain, Reason: reason, Metadata: map[string]string{"k": "v"}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(1500 * time.Millisecond)},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "f", Description: "d"}}},
		&errdetails.RequestInfo{RequestId: "r1"},
	)
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

func TestErrorHasWhatTheServerSaid(t *testing.T) {
	err := convert(context.Background(), statusError(t, codes.NotFound, "PROCESS_NOT_FOUND"), metadata.Pairs("x-request-id", "r0"))
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%T", err)
	}
	want := Error{Code: codes.NotFound, Reason: "PROCESS_NOT_FOUND", Message: "what happened", RequestID: "r1", RetryAfter: 1500 * time.Millisecond}
	if e.Code != want.Code || e.Reason != want.Reason || e.Message != want.Message || e.RequestID != want.RequestID || e.RetryAfter != want.RetryAfter {
		t.Errorf("got %+v", e)
	}
	if e.Metadata["k"] != "v" || len(e.Violations) != 1 || e.Violations[0] != (Violation{"f", "d"}) {
		t.Errorf("got %+v", e)
	}
	if got := e.Error(); got != "NOT_FOUND/PROCESS_NOT_FOUND: what happened" {
		t.Error(got)
	}
	if status.Code(fmt.Errorf("wrapped: %w", err)) != codes.NotFound {
		t.Error("status.Code does not find the code")
	}
}

func TestErrorClasses(t *testing.T) {
	tests := []struct {
		code   codes.Code
		reason string
		is     []error
		not    []error
	}{
		{codes.NotFound, "PROCESS_NOT_FOUND", []error{ErrProcessNotFound, ErrNotFound}, []error{ErrWorkspaceNotFound, ErrInternal}},
		{codes.NotFound, "OF_A_NEWER_SERVER", []error{ErrNotFound}, []error{ErrProcessNotFound}},
		// The reason was given another code since: the code is what callers handle.
		{codes.Aborted, "PROCESS_NOT_FOUND", []error{ErrAborted}, []error{ErrProcessNotFound, ErrNotFound}},
		{codes.InvalidArgument, "ARCHIVE_UNSAFE", []error{ErrArchiveInvalid, ErrInvalidArgument}, []error{ErrSkillInvalid}},
		{codes.FailedPrecondition, "MCP_PROTOCOL_ERROR", []error{ErrMCPStartFailed, ErrFailedPrecondition}, nil},
		{codes.Unavailable, "", []error{ErrUnavailable}, []error{ErrDraining, ErrUnreachable, ErrMCPUnavailable}},
		{codes.Unknown, "", []error{ErrInternal}, []error{ErrUnavailable}},
		{codes.Code(99), "", []error{ErrInternal}, []error{ErrUnavailable}},
	}
	for _, test := range tests {
		t.Run(test.code.String()+"/"+test.reason, func(t *testing.T) {
			err := error(&Error{Code: test.code, Reason: test.reason})
			for _, class := range test.is {
				if !errors.Is(err, class) {
					t.Errorf("is not %v", class)
				}
			}
			for _, class := range test.not {
				if errors.Is(err, class) {
					t.Errorf("is %v", class)
				}
			}
		})
	}
	if lost := error(&OutputLostError{Start: 1, End: 5}); !errors.Is(lost, ErrOutputLost) || !errors.Is(lost, ErrDataLoss) {
		t.Error("an OutputLostError is no ErrOutputLost")
	}
	if failed := error(&ExitError{}); !errors.Is(failed, ErrCommandFailed) || errors.Is(failed, ErrInternal) {
		t.Error("an ExitError is an ErrCommandFailed alone")
	}
}

func TestErrorsOfTheCallersContext(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	err := convert(cancelled, status.Error(codes.Canceled, "context canceled"), nil)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrCancelled) {
		t.Errorf("%v", err)
	}
	err = convert(context.Background(), status.Error(codes.Canceled, "by the server"), nil)
	if errors.Is(err, context.Canceled) || !errors.Is(err, ErrCancelled) {
		t.Errorf("%v", err)
	}
	err = convert(context.Background(), status.Error(codes.DeadlineExceeded, "late"), nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestStdinBuffer(t *testing.T) {
	var b stdinBuffer
	b.begin(10)
	b.append([]byte("abc"))
	b.append([]byte("defg"))
	if b.end != 17 || b.room() != stdinLimitBytes-7 {
		t.Fatalf("%+v", b)
	}
	tests := []struct {
		acknowledge int64
		grown       bool
		from        int64
		offset      int64
		chunk       string
	}{
		{5, false, 10, 10, "abc"},
		{11, true, 10, 11, "bc"},
		{11, false, 12, 12, "c"},
		{13, true, 11, 13, "defg"},
		{15, true, 16, 16, "g"},
		{99, true, 15, 15, ""},
	}
	for _, test := range tests {
		if grown := b.acknowledge(test.acknowledge); grown != test.grown {
			t.Errorf("acknowledge %d: %v", test.acknowledge, grown)
		}
		if offset, chunk := b.from(test.from); offset != test.offset || string(chunk) != test.chunk {
			t.Errorf("from %d after %d: %d %q", test.from, test.acknowledge, offset, chunk)
		}
	}
	if b.acked != 17 {
		t.Errorf("%+v", b)
	}
}

func TestFrameTracker(t *testing.T) {
	frame := func(size int) []byte {
		return append([]byte{byte(size >> 16), byte(size >> 8), byte(size), 0, 0, 0, 0, 0, 1}, make([]byte, size)...)
	}
	stream := slicesOf([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(0), frame(5), frame(70000))
	whole := bytes.Join(stream, nil)
	ends := map[int]bool{}
	at := 0
	for _, part := range stream {
		at += len(part)
		ends[at] = true
	}
	for _, step := range []int{1, 2, 7, 9, 24, 33, len(whole)} {
		var tracker frameTracker
		if tracker.between() {
			t.Error("a ping before the preface")
		}
		for begin := 0; begin < len(whole); begin += step {
			end := min(begin+step, len(whole))
			tracker.advance(whole[begin:end])
			if tracker.between() != ends[end] {
				t.Fatalf("in steps of %d, at %d: %v", step, end, tracker.between())
			}
		}
	}
}

func slicesOf(parts ...[]byte) [][]byte { return parts }

func TestDialRefuses(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.pem")
	tests := []struct {
		name    string
		target  string
		options []Option
		want    string
	}{
		{"a token in the clear", "example.test:7420", []Option{WithToken("t")}, "WithTLS"},
		{"a token that is no header", "127.0.0.1:1", []Option{WithToken("a\nb")}, "printable"},
		{"no such authority", "127.0.0.1:1", []Option{WithCA(missing)}, "no such file"},
		{"no such certificate", "127.0.0.1:1", []Option{WithClientCertificate(missing, missing)}, "no such file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := Dial(test.target, test.options...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v", err)
			}
		})
	}
	for _, target := range []string{"example.test:7420", "[::1]:7420", "localhost:7420", "unix:///run/workspaced"} {
		options := []Option{WithToken("t")}
		if !isLoopback(target) {
			options = append(options, WithInsecure())
		}
		client, err := Dial(target, options...)
		if err != nil {
			t.Fatal(err)
		}
		_ = client.Close()
	}
}

func TestTail(t *testing.T) {
	var kept []byte
	for _, piece := range []string{"abc", "", "defgh", "0123456789", "x"} {
		kept = tail(kept, []byte(piece), 8)
	}
	if string(kept) != "3456789x" {
		t.Errorf("%q", kept)
	}
}

func TestDeadline(t *testing.T) {
	var d deadline
	first := d.wait()
	d.set(time.Now().Add(time.Hour))
	d.set(time.Now().Add(-time.Second))
	<-first
	if !d.passed() {
		t.Error("not passed")
	}
	d.set(time.Time{})
	if d.passed() {
		t.Error("passed after it was taken away")
	}
	d.set(time.Now().Add(time.Millisecond))
	<-d.wait()
}

func TestBeginningOfInput(t *testing.T) {
	input, rest, err := beginning(strings.NewReader("short"))
	if string(input) != "short" || rest != nil || err != nil {
		t.Error(input, rest, err)
	}
	long := pattern(answerBytes + 5)
	_, rest, err = beginning(bytes.NewReader(long))
	if err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(rest); !bytes.Equal(all, long) || err != nil {
		t.Error("the rest is not all of it")
	}
}
