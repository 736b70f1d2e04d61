package workspaced

import (
	"context"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// identity is the agent and the session on whose behalf calls are made. Empty ids are absent ones: places of their own, which no
// id can name.
type identity struct{ agentID, sessionID string }

func (i identity) agent() *string { return optionalID(i.agentID) }

func (i identity) session() *string { return optionalID(i.sessionID) }

func optionalID(id string) *string {
	if id == "" {
		return nil
	}
	return &id
}

// As is a handle on the same workspace for an agent and a session: its Tools, MCPs, Skills, Instructions, PurgeSession and
// PurgeAgent are those of the two. MCP servers belong to the pair, skills to the agent. An empty id is an agent, or a session, of
// its own that no id can name; so it is with handles on which As was not called.
func (w *Workspace) As(agentID, sessionID string) *Workspace {
	return &Workspace{ID: w.ID, client: w.client, as: identity{agentID, sessionID}}
}

// Instructions is the text for an agent's system prompt: where it is, what it has, how to use it.
func (w *Workspace) Instructions(ctx context.Context) (string, error) {
	request := &pb.GetInstructionsRequest{WorkspaceId: w.ID, AgentId: w.as.agent(), SessionId: w.as.session()}
	response, err := unary(ctx, w.client, w.client.discovery.GetInstructions, request, longTimeout)
	return response.GetInstructions(), err
}

// PurgeSession removes what the session of [Workspace.As] leaves behind: its MCP servers, contexts and tool results. Idempotent.
func (w *Workspace) PurgeSession(ctx context.Context) error {
	request := &pb.PurgeSessionRequest{WorkspaceId: w.ID, AgentId: w.as.agent(), SessionId: w.as.sessionID}
	_, err := unary(ctx, w.client, w.client.management.PurgeSession, request, w.client.timeout)
	return err
}

// PurgeAgent removes what the agent of [Workspace.As] leaves behind: its skills, and the MCP servers of all its sessions.
// Contexts and tool results stay, since they belong to sessions. Idempotent.
func (w *Workspace) PurgeAgent(ctx context.Context) error {
	request := &pb.PurgeAgentRequest{WorkspaceId: w.ID, AgentId: w.as.agent()}
	_, err := unary(ctx, w.client, w.client.management.PurgeAgent, request, w.client.timeout)
	return err
}
