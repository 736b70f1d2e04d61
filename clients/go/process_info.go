package workspaced

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// Event is output of a process.
type Event struct {
	Stream Stream
	// Offset of the first byte in the journal, which counts the bytes of all streams.
	Offset int64
	// Data belongs to the receiver.
	Data []byte
}

// OutputLostError says that bytes of the journal are no longer kept. Reading can go on after it.
type OutputLostError struct {
	// Start is the offset of the first byte that is lost, End that of the first that follows.
	Start, End int64
}

// Error says how much was lost.
func (e *OutputLostError) Error() string {
	return fmt.Sprintf("DATA_LOSS/OUTPUT_LOST: %d bytes of output, from offset %d, are no longer kept", e.End-e.Start, e.Start)
}

// Is makes it an [ErrOutputLost] and an [ErrDataLoss].
func (e *OutputLostError) Is(target error) bool {
	class, ok := target.(*class)
	return ok && class.holds(codes.DataLoss, "OUTPUT_LOST")
}

// ResourceUsage is what a process and its reaped children used.
type ResourceUsage struct {
	UserTime, SystemTime time.Duration
	// MaxRSSBytes is the peak resident memory of the largest process.
	MaxRSSBytes uint64
}

// Exit is how a process ended.
type Exit struct {
	Reason ExitReason
	// Code is its exit code; -1 when it has none, because a signal ended it or its end was not seen.
	Code int
	// Signal that ended it, without SIG; empty when none did.
	Signal string
	// Usage is nil where it is not known.
	Usage *ResourceUsage
	// OutputIncomplete: some output was or may have been lost.
	OutputIncomplete bool
	// Drained: another process still held the output open when the exit was reported.
	Drained bool
	Time    time.Time
}

// OK tells whether it ended by itself with code 0.
func (e Exit) OK() bool { return e.Reason == ExitExited && e.Code == 0 }

// String is how it ended, in words.
func (e Exit) String() string {
	status := "signal unknown"
	if e.Signal != "" {
		status = "signal " + e.Signal
	} else if e.Code >= 0 {
		status = fmt.Sprintf("exit code %d", e.Code)
	}
	if e.Reason == ExitExited || e.Reason == ExitSignaled {
		return status
	}
	return fmt.Sprintf("%s (%s)", strings.ToLower(strings.ReplaceAll(string(e.Reason), "_", " ")), status)
}

func exitOf(p *pb.ProcessExit) Exit {
	exit := Exit{
		Reason:           ExitReason(enumName(p.GetReason(), "EXIT_REASON_")),
		Code:             -1,
		OutputIncomplete: p.GetOutputIncomplete(),
		Drained:          p.GetDrained(),
		Time:             when(p.GetExitTime()),
	}
	switch status := p.GetStatus().(type) {
	case *pb.ProcessExit_ExitCode:
		exit.Code = int(status.ExitCode)
	case *pb.ProcessExit_Signal:
		exit.Signal = status.Signal
	}
	if usage := p.GetUsage(); usage != nil {
		exit.Usage = &ResourceUsage{
			UserTime:    usage.GetUserTime().AsDuration(),
			SystemTime:  usage.GetSystemTime().AsDuration(),
			MaxRSSBytes: usage.GetMaxRssBytes(),
		}
	}
	return exit
}

// ExitError is an end other than by exit code 0. The calls went well: [errors.Is] holds for [ErrCommandFailed] alone.
type ExitError struct {
	Exit
	// ProcessID is the process.
	ProcessID string
	// Stderr is the end of what it wrote to standard error, as far as this client has seen it.
	Stderr []byte
	// Result is what was captured, when it comes from Result.Check.
	Result *Result
}

// Error is how it ended, with the end of standard error.
func (e *ExitError) Error() string {
	message := "the command failed: " + e.Exit.String()
	if tail := strings.TrimSpace(string(e.Stderr)); tail != "" {
		message += ": " + tail
	}
	return message
}

// Is makes it an [ErrCommandFailed].
func (e *ExitError) Is(target error) bool { return target == ErrCommandFailed }

// ProcessInfo is a process as its workspace knows it.
type ProcessInfo struct {
	ID string
	// PID inside the sandbox; for people, since pids are used again.
	PID   int
	State ProcessState
	// Line or Args is the command.
	Line      string
	Args      []string
	StartTime time.Time
	// FirstOffset is of the oldest byte of output that is still kept; NextOffset the length of all output so far.
	FirstOffset, NextOffset int64
	// StdinOffset is how many bytes of standard input were accepted.
	StdinOffset int64
	StdinOpen   bool
	// Exit is nil while it runs.
	Exit *Exit
	// Spec is its whole spec, with secrets redacted.
	Spec *pb.ProcessSpec
}

func processInfo(p *pb.Process) ProcessInfo {
	info := ProcessInfo{
		ID:          p.GetProcessId(),
		PID:         int(p.GetPid()),
		State:       ProcessState(enumName(p.GetState(), "PROCESS_STATE_")),
		Line:        p.GetSpec().GetShellCommand(),
		Args:        p.GetSpec().GetArgv().GetArgs(),
		StartTime:   when(p.GetStartTime()),
		FirstOffset: int64(p.GetFirstOffset()),
		NextOffset:  int64(p.GetNextOffset()),
		StdinOffset: int64(p.GetStdinOffset()),
		StdinOpen:   p.GetStdinOpen(),
		Spec:        p.GetSpec(),
	}
	if p.GetExit() != nil {
		exit := exitOf(p.GetExit())
		info.Exit = &exit
	}
	return info
}
