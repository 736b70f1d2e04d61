package workspaced

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

const (
	// What RunProcess takes as standard input, and gives of each stream, at most.
	answerBytes      = mib
	defaultRunOutput = 10 * mib
	checkTailBytes   = 2000
	terminateTimeout = 5 * time.Second
)

// Result is how a command ended, and what it wrote.
type Result struct {
	Exit
	ProcessID string
	// Stdout is standard output, or all output of a terminal.
	Stdout []byte
	Stderr []byte
	// Truncated: Stdout or Stderr is only the beginning; Workspace.Attach(ProcessID) reads all of it.
	Truncated bool
}

// Check is nil after exit code 0, and an [*ExitError] after any other end.
func (r *Result) Check() error {
	if r.OK() {
		return nil
	}
	end := r.Stderr[max(0, len(r.Stderr)-checkTailBytes):]
	return &ExitError{Exit: r.Exit, ProcessID: r.ProcessID, Stderr: end, Result: r}
}

// Run runs a command to its end. A command that ran and failed is a [Result]; see [Result.Check].
//
// Of each stream the first Command.MaxOutputBytes are returned. Errors: [ErrProcessStartFailed] when it cannot be started. There is
// no deadline unless the context or Command.Timeout has one.
//
// An end of the context ends the process tree, unless the policy is [DisconnectKeep]: TERM at once, KILL 10 s later. After a broken
// connection the call is repeated under the same ID, and the command, which runs once, goes on; [DisconnectKeep] is what keeps it
// alive when the connection is away for more than 10 s.
func (w *Workspace) Run(ctx context.Context, command Command) (*Result, error) {
	if command.StdinPipe {
		return nil, invalidArgument("Run has no StdinPipe; use Stdin, or Exec")
	}
	limit := command.MaxOutputBytes
	switch {
	case limit < 0:
		return nil, invalidArgument("MaxOutputBytes is not negative")
	case limit == 0:
		limit = defaultRunOutput
	}
	input, rest, err := beginning(command.Stdin)
	if err != nil {
		return nil, err
	}
	command.Stdin = nil
	if rest != nil {
		command.Stdin = rest
		return w.runFed(ctx, command, limit)
	}
	spec, err := command.spec()
	if err != nil {
		return nil, err
	}
	request := &pb.RunProcessRequest{
		WorkspaceId: w.ID, ProcessId: command.id(), Spec: spec, Stdin: input,
		MaxOutputBytes: uint32(min(limit, answerBytes)),
	}
	response, err := w.callRun(ctx, request)
	if err != nil {
		return nil, err
	}
	result := &Result{
		Exit: exitOf(response.GetProcess().GetExit()), ProcessID: request.ProcessId,
		Stdout: response.GetStdout(), Stderr: response.GetStderr(), Truncated: response.GetTruncated(),
	}
	if result.Truncated && limit > answerBytes {
		return w.readAll(ctx, result, limit)
	}
	return result, nil
}

// beginning reads what one answer takes; the rest is a reader of everything when there is more.
func beginning(source io.Reader) (input []byte, rest io.Reader, err error) {
	if source == nil {
		return nil, nil, nil
	}
	input, err = io.ReadAll(io.LimitReader(source, answerBytes+1))
	if err != nil || len(input) <= answerBytes {
		return input, nil, err
	}
	return nil, io.MultiReader(bytes.NewReader(input), source), nil
}

// callRun repeats the call as it is: the same id and spec attach to the process that the first attempt started.
func (w *Workspace) callRun(ctx context.Context, request *pb.RunProcessRequest) (*pb.RunProcessResponse, error) {
	var lost outage
	for {
		began := time.Now()
		response, err := once(ctx, w.client, w.client.execution.RunProcess, request, 0)
		if err == nil {
			return response, nil
		}
		if time.Since(began) > w.client.retryLimit(err, w.client.resumeTimeout) {
			lost.since, lost.unreachable = time.Time{}, time.Time{} // this attempt stood for a while
		}
		if !lost.pause(ctx, w.client, err) {
			if ctx.Err() != nil && request.GetSpec().GetDisconnectPolicy() != pb.DisconnectPolicy_DISCONNECT_POLICY_KEEP {
				w.client.companion(func() { w.terminate(ctx, request.GetProcessId()) })
			}
			return nil, err
		}
	}
}

// terminate asks the process tree of a call that was given up to end. What does not hear of it, or does not care, the server kills
// 10 s after the call.
func (w *Workspace) terminate(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), terminateTimeout)
	defer cancel()
	_, _ = once(ctx, w.client, w.client.execution.SignalProcess,
		&pb.SignalProcessRequest{WorkspaceId: w.ID, ProcessId: id, Signal: "TERM"}, 0)
}

// readAll reads the output of a process that has ended and wrote more than one answer holds.
func (w *Workspace) readAll(ctx context.Context, short *Result, limit int) (*Result, error) {
	p := w.newProcess(ctx, short.ProcessID)
	p.attachment.readOnly = true
	defer p.Detach()
	captured := capture{limit: limit}
	for event, err := range p.Events(ctx) {
		if errors.Is(err, ErrOutputLost) {
			return short, nil // its beginning is no longer kept; what the answer held is
		}
		if err != nil {
			return nil, err
		}
		if captured.add(event); captured.full() {
			break
		}
	}
	return captured.result(short.ProcessID, short.Exit), nil
}

// runFed runs a command whose input is larger than one call takes.
func (w *Workspace) runFed(ctx context.Context, command Command, limit int) (*Result, error) {
	if command.DisconnectPolicy == "" {
		command.DisconnectPolicy = DisconnectKill // as RunProcess has it
	}
	p, err := w.Exec(ctx, command)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	captured := capture{limit: limit}
	for event, err := range p.Events(ctx) {
		if err != nil {
			return nil, err
		}
		captured.add(event)
	}
	if err := p.feeder.failure(); err != nil {
		return nil, err
	}
	exit, err := p.wait(ctx)
	if err != nil {
		return nil, err
	}
	return captured.result(p.ID, exit), nil
}

// capture is the first bytes of both streams, at most limit of each.
type capture struct {
	limit          int
	stdout, stderr []byte
	truncated      bool
}

func (c *capture) add(event Event) {
	target := &c.stdout
	if event.Stream == Stderr {
		target = &c.stderr
	}
	data := event.Data
	if room := c.limit - len(*target); len(data) > room {
		c.truncated = true
		data = data[:room]
	}
	*target = append(*target, data...)
}

func (c *capture) full() bool {
	return c.truncated && len(c.stdout) >= c.limit && len(c.stderr) >= c.limit
}

func (c *capture) result(id string, exit Exit) *Result {
	return &Result{Exit: exit, ProcessID: id, Stdout: c.stdout, Stderr: c.stderr, Truncated: c.truncated}
}
