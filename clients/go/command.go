package workspaced

import (
	"io"
	"maps"
	"slices"
	"time"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// DisconnectPolicy says what becomes of a process whose last attachment is lost.
type DisconnectPolicy string

// The policies. The zero value is DisconnectKeep, and DisconnectKill for [Workspace.Run].
const (
	// DisconnectKeep: it goes on and can be attached to again.
	DisconnectKeep DisconnectPolicy = "keep"
	// DisconnectKill: its tree is ended unless an attachment follows within 10 s.
	DisconnectKill DisconnectPolicy = "kill"
)

// OverflowPolicy says what happens when the journal of a process is full.
type OverflowPolicy string

// The policies. The zero value is OverflowBlock, and OverflowDropOldest for [Workspace.Start].
const (
	// OverflowBlock: the process waits in its write until its output is read.
	OverflowBlock OverflowPolicy = "block"
	// OverflowDropOldest: the oldest part is dropped; a reader that still wanted it gets an [*OutputLostError].
	OverflowDropOldest OverflowPolicy = "drop_oldest"
)

// Size is the size of a terminal in characters.
type Size struct{ Cols, Rows int }

// Command is what to run and how. Make it with [Shell] or [Argv] and set what else is wanted; a zero field is a default.
type Command struct {
	// Line is a command line for /bin/sh -c. Of Line and Args one is set.
	Line string
	// Args are a program, which is looked up in PATH, and its arguments.
	Args []string
	// Dir is the working directory, absolute or relative to the workspace's. Empty: the workspace's.
	Dir string
	// Env is added to the workspace's environment.
	Env map[string]string
	// User to run as, where the sandbox permits it.
	User string
	// PTY runs it in a terminal of this size; all its output is then one stream.
	PTY *Size
	// Stdin is copied to standard input, which is closed at its end. Without it standard input is empty. Not for Start.
	Stdin io.Reader
	// StdinPipe keeps standard input open for Process.Stdin. Not for Run.
	StdinPipe bool
	// Timeout ends the whole process tree: TERM, and KILL after KillGrace. The reason is then ExitTimedOut.
	Timeout time.Duration
	// KillGrace is the time from TERM to KILL. 0: 5 s.
	KillGrace time.Duration
	// ID names the process: the same ID with the same command is the same process, whoever starts it. Empty: generated.
	ID string
	// DisconnectPolicy is not for Start, whose processes go on.
	DisconnectPolicy DisconnectPolicy
	OverflowPolicy   OverflowPolicy
	// JournalLimitBytes is the greatest size of its journal, from 64 KiB to 16 GiB. 0: 256 MiB.
	JournalLimitBytes uint64
	// Nice is the niceness to add, from 0 to 19.
	Nice int
	// MaxOutputBytes is how much of each stream Run returns at most. 0: 10 MiB.
	MaxOutputBytes int
}

// Shell is a command line for /bin/sh -c.
func Shell(line string) Command { return Command{Line: line} }

// Argv is a program and its arguments, run without a shell.
func Argv(program string, args ...string) Command {
	return Command{Args: append([]string{program}, args...)}
}

func (c Command) spec() (*pb.ProcessSpec, error) {
	spec := &pb.ProcessSpec{
		Cwd:               c.Dir,
		Env:               maps.Clone(c.Env),
		User:              c.User,
		Stdin:             pb.StdinMode_STDIN_MODE_CLOSED,
		Timeout:           optionalDuration(c.Timeout),
		KillGrace:         optionalDuration(c.KillGrace),
		JournalLimitBytes: c.JournalLimitBytes,
		Nice:              int32(c.Nice),
	}
	switch {
	case c.Line != "" && c.Args != nil:
		return nil, invalidArgument("a Command has Line or Args, not both")
	case c.Args != nil:
		spec.Command = &pb.ProcessSpec_Argv{Argv: &pb.Argv{Args: slices.Clone(c.Args)}}
	default:
		spec.Command = &pb.ProcessSpec_ShellCommand{ShellCommand: c.Line}
	}
	if c.StdinPipe || c.Stdin != nil {
		spec.Stdin = pb.StdinMode_STDIN_MODE_OPEN
	}
	if c.StdinPipe && c.Stdin != nil {
		return nil, invalidArgument("a Command has Stdin or StdinPipe, not both")
	}
	if c.PTY != nil {
		if c.PTY.Cols < 0 || c.PTY.Rows < 0 {
			return nil, invalidArgument("the size of a terminal is not negative")
		}
		spec.Pty = &pb.PtySize{Cols: uint32(c.PTY.Cols), Rows: uint32(c.PTY.Rows)}
	}
	if c.Timeout < 0 || c.KillGrace < 0 {
		return nil, invalidArgument("a duration is not negative")
	}
	var err error
	if spec.DisconnectPolicy, err = enumNumber[pb.DisconnectPolicy](string(c.DisconnectPolicy), "DISCONNECT_POLICY_"); err != nil {
		return nil, err
	}
	if spec.OverflowPolicy, err = enumNumber[pb.OverflowPolicy](string(c.OverflowPolicy), "OVERFLOW_POLICY_"); err != nil {
		return nil, err
	}
	return spec, nil
}

func (c Command) id() string {
	if c.ID == "" {
		return newID()
	}
	return c.ID
}
