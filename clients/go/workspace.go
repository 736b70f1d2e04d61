package workspaced

import (
	"context"
	"time"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// Workspace is a handle on a workspace, made by [Client.Initialize] or [Client.Workspace]. It holds no resource.
//
// Every method may fail with [ErrWorkspaceNotFound], with [ErrWorkspaceNotReady] when it is closed, and with [ErrUnreachable]
// when its sandbox is gone or does not answer ([Client.Initialize] recovers it).
type Workspace struct {
	// ID names it on the server.
	ID string

	client *Client
	// as is the agent and session that tools, MCP servers and skills are those of.
	as identity
}

// Client is what made the handle.
func (w *Workspace) Client() *Client { return w.client }

// Info tells what the server knows of it now.
func (w *Workspace) Info(ctx context.Context) (WorkspaceInfo, error) {
	request := &pb.GetWorkspaceRequest{WorkspaceId: w.ID}
	response, err := unary(ctx, w.client, w.client.lifecycle.GetWorkspace, request, w.client.timeout)
	if err != nil {
		return WorkspaceInfo{}, err
	}
	return workspaceInfo(response.GetWorkspace()), nil
}

// CloseOptions change [Workspace.Close].
type CloseOptions struct {
	// Grace is the time from TERM to KILL for its processes. 0: the server's 5 s.
	Grace time.Duration
}

// Close ends its processes and suspends it as its backend does; [Client.Initialize] resumes it. Idempotent.
func (w *Workspace) Close(ctx context.Context, options CloseOptions) (WorkspaceInfo, error) {
	request := &pb.CloseWorkspaceRequest{WorkspaceId: w.ID, Grace: optionalDuration(options.Grace)}
	response, err := unary(ctx, w.client, w.client.lifecycle.CloseWorkspace, request, longTimeout)
	if err != nil {
		return WorkspaceInfo{}, err
	}
	return workspaceInfo(response.GetWorkspace()), nil
}

// ResetOptions change [Workspace.Reset].
type ResetOptions struct {
	// WipeFiles also removes every file of the workdir.
	WipeFiles bool
	// KillProcesses also ends every process.
	KillProcesses bool
}

// Reset removes MCP declarations, skills, sessions and data. Idempotent.
func (w *Workspace) Reset(ctx context.Context, options ResetOptions) (WorkspaceInfo, error) {
	request := &pb.ResetWorkspaceRequest{
		WorkspaceId: w.ID, WipeFiles: options.WipeFiles, KillProcesses: options.KillProcesses,
	}
	response, err := unary(ctx, w.client, w.client.lifecycle.ResetWorkspace, request, longTimeout)
	if err != nil {
		return WorkspaceInfo{}, err
	}
	return workspaceInfo(response.GetWorkspace()), nil
}

// DeleteOptions change [Workspace.Delete].
type DeleteOptions struct {
	// AllowMissing makes a workspace that does not exist no error, and so the call idempotent.
	AllowMissing bool
}

// Delete removes it, its sandbox and its files. It is repeated after a broken connection only with AllowMissing.
func (w *Workspace) Delete(ctx context.Context, options DeleteOptions) error {
	request := &pb.DeleteWorkspaceRequest{WorkspaceId: w.ID, AllowMissing: options.AllowMissing}
	call := w.client.lifecycle.DeleteWorkspace
	var err error
	if options.AllowMissing {
		_, err = unary(ctx, w.client, call, request, longTimeout)
	} else {
		_, err = once(ctx, w.client, call, request, longTimeout)
	}
	return err
}
