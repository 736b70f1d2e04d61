package workspaced

import (
	"context"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// Exec starts a process and attaches to it. Close the handle when done with it; the process goes on then, unless
// [DisconnectKill].
//
// The context is of the attachment, not only of the call: when it ends, the handle detaches. Errors: [ErrProcessStartFailed], and
// [ErrProcessExists] for an ID that runs something else; the same ID with the same command attaches to what there is. When the
// answer to a start is lost it is repeated under the same ID, so nothing runs twice.
func (w *Workspace) Exec(ctx context.Context, command Command) (*Process, error) {
	spec, err := command.spec()
	if err != nil {
		return nil, err
	}
	p := w.newProcess(ctx, command.id())
	p.attachment.start = spec
	p.kill = command.DisconnectPolicy == DisconnectKill
	if err := p.attach(ctx); err != nil {
		p.Detach()
		return nil, err
	}
	if command.Stdin != nil {
		p.feed(ctx, command.Stdin)
	}
	return p, nil
}

// Start starts a process in the background, and returns as soon as it runs. It goes on without this program. Idempotent by
// Command.ID. A full journal drops its oldest part, unless [OverflowBlock].
//
// Nothing is attached before the handle is read or written, and what is then stays so until [Process.Close]. The context is of
// the call alone.
func (w *Workspace) Start(ctx context.Context, command Command) (*Process, error) {
	switch {
	case command.Stdin != nil:
		return nil, invalidArgument("Start takes no Stdin; use StdinPipe and Process.Stdin")
	case command.DisconnectPolicy == DisconnectKill:
		return nil, invalidArgument("a process of Start goes on; use Exec for DisconnectKill")
	}
	spec, err := command.spec()
	if err != nil {
		return nil, err
	}
	request := &pb.StartProcessRequest{WorkspaceId: w.ID, ProcessId: command.id(), Spec: spec}
	response, err := unary(ctx, w.client, w.client.execution.StartProcess, request, w.client.timeout)
	if err != nil {
		return nil, err
	}
	return w.Process(response.GetProcess().GetProcessId()), nil
}

// AttachOptions change [Workspace.Attach].
type AttachOptions struct {
	// Offset of the journal to begin at.
	Offset int64
	// ReadOnly needs no more than the scope READ, and cannot write to standard input.
	ReadOnly bool
}

// Attach attaches to a process. The context is of the attachment, as in [Workspace.Exec]. Errors: [ErrProcessNotFound], and
// [ErrOutOfRange] for an offset beyond the end.
func (w *Workspace) Attach(ctx context.Context, id string, options AttachOptions) (*Process, error) {
	if options.Offset < 0 {
		return nil, invalidArgument("an offset is not negative")
	}
	p := w.newProcess(ctx, id)
	p.attachment.readOnly = options.ReadOnly
	p.attachment.offset, p.attachment.nextRead = options.Offset, options.Offset
	if err := p.attach(ctx); err != nil {
		p.Detach()
		return nil, err
	}
	return p, nil
}

// Process is a handle on a process, without asking the server. It attaches when it is read or written, until [Process.Close].
func (w *Workspace) Process(id string) *Process {
	return w.newProcess(context.Background(), id)
}

// Processes are those that are kept, by start time; a state other than [ProcessUnspecified] or "" chooses.
func (w *Workspace) Processes(ctx context.Context, state ProcessState) ([]ProcessInfo, error) {
	number, err := enumNumber[pb.ProcessState](string(state), "PROCESS_STATE_")
	if err != nil {
		return nil, err
	}
	var found []ProcessInfo
	for token := ""; ; {
		request := &pb.ListProcessesRequest{WorkspaceId: w.ID, PageSize: 100, PageToken: token, State: number}
		response, err := unary(ctx, w.client, w.client.execution.ListProcesses, request, w.client.timeout)
		if err != nil {
			return nil, err
		}
		for _, process := range response.GetProcesses() {
			found = append(found, processInfo(process))
		}
		if token = response.GetNextPageToken(); token == "" {
			return found, nil
		}
	}
}
