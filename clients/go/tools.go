package workspaced

import (
	"context"
	"fmt"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// ToolKind says where a tool comes from.
type ToolKind string

// The kinds of tools.
const (
	// ToolBuiltin is one of the workspace's own tools.
	ToolBuiltin ToolKind = "builtin"
	// ToolMCP is a tool of an MCP server.
	ToolMCP ToolKind = "mcp"
)

// ToolInfo is a tool, described so that it can be handed to a model: Name, Description, InputSchema.
type ToolInfo struct {
	Name        string
	Description string
	// InputSchema is a JSON Schema, of an object.
	InputSchema map[string]any
	Kind        ToolKind
	// Source is the name of the MCP server that offers it.
	Source string
	// ReadOnly, Destructive, Idempotent and OpenWorld are what the tool's author says of it. Nothing enforces them.
	ReadOnly, Destructive, Idempotent, OpenWorld bool
	// Title is for people; may be empty.
	Title string
	// OriginalName is the name at its source.
	OriginalName string
	// OutputSchema is the JSON Schema of [ToolResult].Structured; nil for a tool that gives none.
	OutputSchema map[string]any
}

// ToolList is the tools that can be called, and why those of some MCP servers are missing.
type ToolList struct {
	Tools     []ToolInfo
	MCPErrors []*MCPError
}

// Tools lists and calls the tools of a workspace: its own, and those of its MCP servers.
type Tools struct{ workspace *Workspace }

// Tools is the tools of the agent and session that the handle is for: see [Workspace.As].
func (w *Workspace) Tools() *Tools { return &Tools{workspace: w} }

// ListToolsOptions say which tools are meant. The zero value means all.
type ListToolsOptions struct {
	// Kind, when not empty, is the only kind. With ToolBuiltin no MCP server is started.
	Kind ToolKind
	// MCP, when not empty, is the only server whose tools are listed; [ErrMCPNotFound] when it is not declared.
	MCP string
}

// List gives the built-in tools, then those of the MCP servers in the order of their declaration. It starts the servers that it
// needs; one that fails does not fail the call.
func (t *Tools) List(ctx context.Context, options ListToolsOptions) (ToolList, error) {
	w := t.workspace
	kind, err := enumNumber[pb.ToolKind](string(options.Kind), "TOOL_KIND_")
	if err != nil {
		return ToolList{}, err
	}
	var list ToolList
	tools, err := collect(pages(func(token string) ([]*pb.Tool, string, error) {
		request := &pb.ListToolsRequest{
			WorkspaceId: w.ID, AgentId: w.as.agent(), SessionId: w.as.session(), Kind: kind, Mcp: options.MCP,
			PageSize: maxPageSize, PageToken: token,
		}
		response, err := unary(ctx, w.client, w.client.discovery.ListTools, request, w.client.timeout)
		list.MCPErrors = append(list.MCPErrors, each(response.GetMcpErrors(), mcpErrorOf)...)
		return response.GetTools(), response.GetNextPageToken(), err
	}))
	if err != nil {
		return ToolList{}, err
	}
	list.Tools = each(tools, toolInfoOf)
	return list, nil
}

// ToolCall says how a tool is called. The zero value is fine.
type ToolCall struct {
	// Timeout stops the tool; what it gave by then is the result, of state [ToolInterrupted]. 0: the tool's own.
	Timeout time.Duration
	// OffloadOverBytes stores text beyond so many bytes, and larger data blocks, in the workspace. 0: never.
	OffloadOverBytes int64
	// ID is the caller's id of the call, usually the one that the model gave. Empty: generated.
	ID string
	// OnEvent is called with each event but the result, by the goroutine that made the call.
	OnEvent func(ToolEvent)
}

// Call calls a tool and waits for its result. A tool that reports an error returns it ([ToolResult].IsError), for a model to act
// on. input is anything that encodes as a JSON object, such as a map, a struct or the [encoding/json.RawMessage] of a model; nil
// is the empty object.
//
// The end of the context stops the tool. Fails with [ErrToolNotFound] and [ErrMCPUnavailable]. A broken connection is
// [ErrUnavailable]: whether the tool ran is not known, and it is not called again.
func (t *Tools) Call(ctx context.Context, name string, input any, call ToolCall) (*ToolResult, error) {
	for event, err := range t.Events(ctx, name, input, call) {
		if err != nil {
			return nil, err
		}
		if result, ok := event.(*ToolResult); ok {
			return result, nil
		}
	}
	return nil, &Error{Code: codes.Internal, Message: fmt.Sprintf("the call of %q ended without a result", name)}
}

// Events calls a tool as Call does and gives its events; the [*ToolResult], or an error, comes last. Leaving the loop before stops
// the tool.
func (t *Tools) Events(ctx context.Context, name string, input any, call ToolCall) iter.Seq2[ToolEvent, error] {
	w := t.workspace
	return func(yield func(ToolEvent, error) bool) {
		object, err := jsonObject(input)
		if err != nil {
			yield(nil, invalidArgument(fmt.Sprintf("input of the tool %q: %v", name, err)))
			return
		}
		request := &pb.CallToolRequest{
			WorkspaceId: w.ID, AgentId: w.as.agent(), SessionId: w.as.session(), Name: name, Input: object, CallId: call.ID,
			OffloadOverBytes: uint64(max(call.OffloadOverBytes, 0)),
		}
		if call.Timeout > 0 {
			request.Timeout = durationpb.New(call.Timeout)
		}
		for response, err := range serverStream(ctx, w.client, w.client.execution.CallTool, request) {
			if err != nil {
				yield(nil, err)
				return
			}
			event := toolEventOf(name, response)
			if event == nil {
				continue
			}
			if _, last := event.(*ToolResult); !last && call.OnEvent != nil {
				call.OnEvent(event)
			}
			if !yield(event, nil) {
				return
			}
		}
	}
}

func toolInfoOf(tool *pb.Tool) ToolInfo {
	made := ToolInfo{
		Name:         tool.GetName(),
		Description:  tool.GetDescription(),
		InputSchema:  tool.GetInputSchema().AsMap(),
		Kind:         ToolBuiltin,
		Source:       tool.GetSource(),
		ReadOnly:     tool.GetReadOnly(),
		Destructive:  tool.GetDestructive(),
		Idempotent:   tool.GetIdempotent(),
		OpenWorld:    tool.GetOpenWorld(),
		Title:        tool.GetTitle(),
		OriginalName: tool.GetOriginalName(),
	}
	if tool.GetKind() == pb.ToolKind_TOOL_KIND_MCP {
		made.Kind = ToolMCP
	}
	if tool.OutputSchema != nil {
		made.OutputSchema = tool.OutputSchema.AsMap()
	}
	return made
}
