package workspaced

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

const waitSlice = 30 * time.Second

// Signals of which two are as good as one, so that they are sent again when an answer is lost.
var repeatableSignals = []string{"KILL", "TERM", "STOP", "CONT", "WINCH"}

// Process is a process, running or ended, made by [Workspace.Exec], [Workspace.Start], [Workspace.Attach] and [Workspace.Process].
//
// Read its output either in the order in which it was written, by [Process.Events] or [Process.Next], or as the two readers
// Stdout and Stderr; not both ways. Each byte comes once, also over broken connections and restarts of the server. Output that
// nobody reads is buffered up to 2 MiB, then kept by the workspace, and in the end the process waits in its write.
//
// A handle that is attached holds a goroutine and a stream, until the process has ended and its output was read, or [Process.Close].
type Process struct {
	// ID names it in its workspace.
	ID string
	// WorkspaceID names its workspace.
	WorkspaceID string
	// Stdin is its standard input; needs Command.StdinPipe or Command.PTY. A write returns when its bytes are taken: at most
	// 1 MiB is on its way, else it waits for the process to read. Each byte arrives exactly once. Close closes standard input
	// after what was written. Errors: [ErrStdinClosed].
	Stdin io.WriteCloser
	// Stdout is its standard output, or all output of a terminal, and Stderr its standard error. They are independent as long
	// as both are read, or one alone: what then comes for the other is kept in the workspace once 1 MiB of it was buffered,
	// and fetched when it is read after all. Errors other than io.EOF: those of Next.
	Stdout, Stderr io.Reader

	client     *Client
	attachment *attachment
	// lifetime bounds an attachment that this handle makes.
	lifetime context.Context
	kill     bool
	feeder   *feeder
	demux    *demux
}

func (w *Workspace) newProcess(lifetime context.Context, id string) *Process {
	p := &Process{ID: id, WorkspaceID: w.ID, client: w.client, lifetime: lifetime}
	p.attachment = &attachment{client: w.client, workspaceID: w.ID, processID: id}
	p.Stdin = stdinWriter{p}
	p.demux = newDemux(p)
	p.Stdout, p.Stderr = &outputReader{demux: p.demux}, &outputReader{demux: p.demux, number: 1}
	return p
}

// attach attaches if nothing does, and waits until that stands.
func (p *Process) attach(ctx context.Context) error {
	return p.attachment.open(p.lifetime, ctx)
}

// Next is the next output; [io.EOF] when the process has ended and everything was read. After an [*OutputLostError] reading can
// go on. An end of the context loses nothing.
func (p *Process) Next(ctx context.Context) (Event, error) {
	for {
		found, err := p.attachment.next(ctx)
		switch {
		case errors.Is(err, errDetached):
			if err := p.attach(ctx); err != nil {
				return Event{}, err
			}
		case err != nil:
			return Event{}, err
		case found.gap != nil:
			return Event{}, found.gap
		default:
			return found.Event, nil
		}
	}
}

// Events is a loop over the output, which ends when the process has ended. An error is the last, but for an [*OutputLostError],
// after which the loop goes on.
//
// Leaving the loop, or an end of the context, detaches: no goroutine and no call is left, and a later loop or Next goes on at
// the next byte. It stays attached, until [Process.Close], while input is on its way or standard input was closed, and with
// [DisconnectKill], since the process lives by its attachment.
func (p *Process) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		defer p.attachment.release(p.kill)
		for {
			event, err := p.Next(ctx)
			if errors.Is(err, io.EOF) {
				return
			}
			var lost *OutputLostError
			if !yield(event, err) || err != nil && !errors.As(err, &lost) {
				return
			}
		}
	}
}

// Offset of the next byte that Next gives: where [Workspace.Attach] goes on.
func (p *Process) Offset() int64 {
	p.attachment.mu.Lock()
	defer p.attachment.mu.Unlock()
	return p.attachment.offset
}

// PID inside the sandbox, 0 before the handle was attached; for people, since pids are used again.
func (p *Process) PID() int {
	p.attachment.mu.Lock()
	defer p.attachment.mu.Unlock()
	if p.attachment.started == nil {
		return 0
	}
	return p.attachment.started.PID
}

// Existing tells whether the process existed before this handle started or attached to it.
func (p *Process) Existing() bool {
	p.attachment.mu.Lock()
	defer p.attachment.mu.Unlock()
	return p.attachment.existing
}

// StdinOffset is how many bytes of standard input were taken by this handle and accepted before.
func (p *Process) StdinOffset() int64 {
	p.attachment.mu.Lock()
	defer p.attachment.mu.Unlock()
	return p.attachment.stdin.end
}

// Exit is how it ended, and whether that is known to this handle.
func (p *Process) Exit() (Exit, bool) {
	p.attachment.mu.Lock()
	defer p.attachment.mu.Unlock()
	if p.attachment.exit == nil {
		return Exit{}, false
	}
	return *p.attachment.exit, true
}

// WriteStdin is Stdin.Write that ends with a context. It returns how many bytes were taken.
func (p *Process) WriteStdin(ctx context.Context, data []byte) (int, error) {
	taken := 0
	for {
		n, err := p.attachment.write(ctx, data[taken:])
		taken += n
		if !errors.Is(err, errDetached) {
			return taken, err
		}
		if err := p.attach(ctx); err != nil {
			return taken, err
		}
	}
}

// CloseStdin closes standard input after what was written. Idempotent.
func (p *Process) CloseStdin(ctx context.Context) error {
	if err := p.attach(ctx); err != nil {
		return err
	}
	p.attachment.closeStdin()
	return nil
}

type stdinWriter struct{ process *Process }

func (w stdinWriter) Write(data []byte) (int, error) {
	return w.process.WriteStdin(w.process.lifetime, data)
}

func (w stdinWriter) Close() error { return w.process.CloseStdin(w.process.lifetime) }

// Resize gives the process's terminal this size. Without a terminal, reading fails with FAILED_PRECONDITION, NO_PTY.
func (p *Process) Resize(ctx context.Context, size Size) error {
	if err := p.attach(ctx); err != nil {
		return err
	}
	p.attachment.resize(size)
	return nil
}

// Signal sends a signal, such as "TERM", to the whole process tree, and returns how many processes got it. Errors:
// [ErrProcessExited]. KILL, TERM, STOP, CONT and WINCH are sent again when the answer is lost; another is then
// [ErrUnavailable], and may have been sent.
func (p *Process) Signal(ctx context.Context, name string) (int, error) {
	return p.signal(ctx, name, pb.SignalScope_SIGNAL_SCOPE_TREE)
}

// SignalLeader is Signal to the process alone.
func (p *Process) SignalLeader(ctx context.Context, name string) (int, error) {
	return p.signal(ctx, name, pb.SignalScope_SIGNAL_SCOPE_LEADER)
}

func (p *Process) signal(ctx context.Context, name string, scope pb.SignalScope) (int, error) {
	request := &pb.SignalProcessRequest{WorkspaceId: p.WorkspaceID, ProcessId: p.ID, Signal: name, Scope: scope}
	call := once[*pb.SignalProcessRequest, *pb.SignalProcessResponse]
	if slices.Contains(repeatableSignals, strings.TrimPrefix(strings.ToUpper(name), "SIG")) {
		call = unary
	}
	response, err := call(ctx, p.client, p.client.execution.SignalProcess, request, p.client.timeout)
	return int(response.GetSignaled()), err
}

// Kill sends KILL to the whole process tree; a process that has ended is no error. [Process.Wait] tells the end.
func (p *Process) Kill(ctx context.Context) error {
	if _, err := p.Signal(ctx, "KILL"); err != nil && !errors.Is(err, ErrProcessExited) {
		return err
	}
	return nil
}

// Info tells what the workspace knows of it now. Errors: [ErrProcessNotFound].
func (p *Process) Info(ctx context.Context) (ProcessInfo, error) {
	request := &pb.GetProcessRequest{WorkspaceId: p.WorkspaceID, ProcessId: p.ID}
	response, err := unary(ctx, p.client, p.client.execution.GetProcess, request, p.client.timeout)
	if err != nil {
		return ProcessInfo{}, err
	}
	return processInfo(response.GetProcess()), nil
}

// Wait waits for the end, whether or not the output is read; what was not read can be read afterwards. It returns nil after
// exit code 0, and an [*ExitError] after any other end. A process that has filled its journal waits for a reader, though.
//
// When the reader of Command.Stdin failed, its error is returned. An end of the context changes nothing for the process.
func (p *Process) Wait(ctx context.Context) error {
	exit, err := p.wait(ctx)
	if err != nil {
		return err
	}
	if err := p.feeder.failure(); err != nil {
		return err
	}
	if exit.OK() {
		return nil
	}
	p.attachment.mu.Lock()
	defer p.attachment.mu.Unlock()
	return &ExitError{Exit: exit, ProcessID: p.ID, Stderr: slices.Clone(p.attachment.stderrTail)}
}

func (p *Process) wait(ctx context.Context) (Exit, error) {
	if exit, err := p.attachment.settle(ctx); err != nil || exit != nil {
		return p.known(exit), err
	}
	for {
		request := &pb.WaitProcessRequest{WorkspaceId: p.WorkspaceID, ProcessId: p.ID, Timeout: durationpb.New(waitSlice)}
		response, err := p.waitOnce(ctx, request)
		if err != nil {
			return Exit{}, err
		}
		if response.GetExit() != nil {
			return exitOf(response.GetExit()), nil
		}
	}
}

func (p *Process) waitOnce(ctx context.Context, request *pb.WaitProcessRequest) (*pb.WaitProcessResponse, error) {
	slice := waitSlice + p.client.resumeTimeout
	return repeat(ctx, p.client, 0, p.client.resumeTimeout, func(ctx context.Context) (*pb.WaitProcessResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, slice)
		defer cancel()
		return once(ctx, p.client, p.client.execution.WaitProcess, request, 0)
	})
}

func (p *Process) known(exit *Exit) Exit {
	if exit == nil {
		return Exit{}
	}
	return *exit
}

// Detach ends the attachment; the process goes on as its disconnect policy says. The handle can no longer read or write.
// Idempotent.
func (p *Process) Detach() {
	p.attachment.close()
	p.feeder.stop()
	p.demux.close()
}

// Close detaches, and first kills the process tree if it was started with [DisconnectKill] and still runs. Idempotent; the error is always nil.
func (p *Process) Close() error {
	p.attachment.mu.Lock()
	kill := p.kill && p.attachment.exit == nil && p.attachment.started != nil && !p.attachment.closed
	p.attachment.mu.Unlock()
	if kill {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.lifetime), 5*time.Second)
		defer cancel()
		// It has ended, or cannot be reached: then the server kills it 10 s after the attachment is gone.
		_ = p.Kill(ctx)
	}
	p.Detach()
	return nil
}
