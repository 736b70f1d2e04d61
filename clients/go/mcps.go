package workspaced

import (
	"context"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// MCPs declares, lists and asks MCP servers. They belong to the agent and session that the handle is for.
//
// Nothing runs before it is needed, and one that fails does not hide the others.
type MCPs struct{ workspace *Workspace }

// MCPs is the MCP servers of the agent and session that the handle is for: see [Workspace.As].
func (w *Workspace) MCPs() *MCPs { return &MCPs{workspace: w} }

// Add declares a server and connects to it; the deadline of the context, or half an hour, is how long it may take to start.
//
// Idempotent for the same declaration; a name that is taken by another is [ErrMCPExists]. Fails with [ErrMCPStartFailed],
// [ErrMCPUnavailable] and [ErrQuotaExceeded]; the name is free then.
func (m *MCPs) Add(ctx context.Context, server MCPServer) (MCPInfo, error) {
	w := m.workspace
	declared, err := server.proto()
	if err != nil {
		return MCPInfo{}, err
	}
	request := &pb.AddMcpRequest{WorkspaceId: w.ID, AgentId: w.as.agent(), SessionId: w.as.session(), Mcp: declared}
	response, err := unary(ctx, w.client, w.client.management.AddMcp, request, longTimeout)
	if err != nil {
		return MCPInfo{}, err
	}
	return mcpInfoOf(response.GetMcp()), nil
}

// Remove forgets a server and ends it. It tells whether there was one, or without [AllowMissing] fails with [ErrMCPNotFound]; it
// is repeated when a connection breaks only with AllowMissing.
func (m *MCPs) Remove(ctx context.Context, name string, options ...RemoveMCPOption) (bool, error) {
	w := m.workspace
	request := &pb.RemoveMcpRequest{WorkspaceId: w.ID, AgentId: w.as.agent(), SessionId: w.as.session(), Name: name}
	for _, option := range options {
		option.applyRemoveMCP(request)
	}
	response, err := repeatable(ctx, w.client, request.GetAllowMissing(), w.client.management.RemoveMcp, request)
	return response.GetRemoved(), err
}

// ListMCPsOptions change [MCPs.List].
type ListMCPsOptions struct {
	// NoStart starts nothing and waits for nothing: the states are told as they are.
	NoStart bool
}

// List gives the servers in the order of their declaration. Those that never were are started.
func (m *MCPs) List(ctx context.Context, options ListMCPsOptions) ([]MCPInfo, error) {
	w := m.workspace
	return collect(pages(func(token string) ([]MCPInfo, string, error) {
		request := &pb.ListMcpsRequest{
			WorkspaceId: w.ID, AgentId: w.as.agent(), SessionId: w.as.session(), NoStart: options.NoStart,
			PageSize: maxPageSize, PageToken: token,
		}
		response, err := unary(ctx, w.client, w.client.discovery.ListMcps, request, w.client.timeout)
		return each(response.GetMcps(), mcpInfoOf), response.GetNextPageToken(), err
	}))
}

// Resources gives the resources of one server, or with an empty name of all that can be used.
func (m *MCPs) Resources(ctx context.Context, mcp string) ([]MCPResource, error) {
	w := m.workspace
	return collect(pages(func(token string) ([]MCPResource, string, error) {
		request := &pb.ListMcpResourcesRequest{
			WorkspaceId: w.ID, AgentId: w.as.agent(), SessionId: w.as.session(), Mcp: mcp,
			PageSize: maxPageSize, PageToken: token,
		}
		response, err := unary(ctx, w.client, w.client.discovery.ListMcpResources, request, w.client.timeout)
		return each(response.GetResources(), mcpResourceOf), response.GetNextPageToken(), err
	}))
}

// ReadResourceOptions change [MCPs.ReadResource].
type ReadResourceOptions struct {
	// OffloadOverBytes stores larger parts in the workspace. 0: never.
	OffloadOverBytes int64
}

// ReadResource gives the parts of a resource.
func (m *MCPs) ReadResource(
	ctx context.Context, mcp, uri string, options ReadResourceOptions,
) ([]ResourceContent, error) {
	w := m.workspace
	request := &pb.ReadMcpResourceRequest{
		WorkspaceId: w.ID, AgentId: w.as.agent(), SessionId: w.as.session(), Mcp: mcp, Uri: uri,
		OffloadOverBytes: uint64(max(options.OffloadOverBytes, 0)),
	}
	response, err := unary(ctx, w.client, w.client.discovery.ReadMcpResource, request, w.client.timeout)
	if err != nil {
		return nil, err
	}
	return each(response.GetContents(), resourceContentOf), nil
}

// Prompts gives the prompts of one server, or with an empty name of all that can be used.
func (m *MCPs) Prompts(ctx context.Context, mcp string) ([]MCPPrompt, error) {
	w := m.workspace
	return collect(pages(func(token string) ([]MCPPrompt, string, error) {
		request := &pb.ListMcpPromptsRequest{
			WorkspaceId: w.ID, AgentId: w.as.agent(), SessionId: w.as.session(), Mcp: mcp,
			PageSize: maxPageSize, PageToken: token,
		}
		response, err := unary(ctx, w.client, w.client.discovery.ListMcpPrompts, request, w.client.timeout)
		return each(response.GetPrompts(), mcpPromptOf), response.GetNextPageToken(), err
	}))
}

// Prompt gives the messages of a prompt, with its arguments filled in.
func (m *MCPs) Prompt(ctx context.Context, mcp, name string, arguments map[string]string) ([]Message, error) {
	w := m.workspace
	request := &pb.GetMcpPromptRequest{
		WorkspaceId: w.ID, AgentId: w.as.agent(), SessionId: w.as.session(), Mcp: mcp, Name: name, Arguments: arguments,
	}
	response, err := unary(ctx, w.client, w.client.discovery.GetMcpPrompt, request, w.client.timeout)
	if err != nil {
		return nil, err
	}
	return each(response.GetMessages(), messageOf), nil
}
