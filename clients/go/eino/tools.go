// Package eino gives the tools of a workspace to agents that are made with Eino, github.com/cloudwego/eino: its own, such as Bash
// and Edit, and those of its MCP servers.
//
//	ws := lease.Workspace().As("coder", "s1")
//	list, err := ws.Tools().List(ctx, workspaced.ListToolsOptions{})
//	…
//	tools, err := eino.Tools(ws, list.Tools, workspaced.ToolCall{})
//	…
//	agent, err := react.NewAgent(ctx, &react.AgentConfig{
//		ToolCallingModel: model,
//		ToolsConfig:      compose.ToolsNodeConfig{Tools: tools, UnknownToolsHandler: eino.UnknownTool},
//	})
//
// What the model can act on is a result, whose text tells what is wrong: a tool that reports an error, input that does not fit the
// tool, an MCP server that does not answer. Anything else, such as a workspace that is gone, is an error of the agent's run.
// The end of the run's context stops the tool.
package eino

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"

	workspaced "github.com/workspaced/workspaced/clients/go"
)

// Tools are the listed tools of a workspace. All calls are made as call says, under the id that the model gave. What a tool gives
// beside text, such as an image, is described in words; see [MultimodalTools].
//
// Fails when the schema of a tool's input is not one that Eino knows; leave that tool out of the list then.
func Tools(ws *workspaced.Workspace, list []workspaced.ToolInfo, call workspaced.ToolCall) ([]tool.BaseTool, error) {
	return made(ws, list, call, func(c caller) tool.BaseTool { return textTool{c} })
}

// MultimodalTools are the same for a model that takes images and other data as results of tools. They are in
// schema.Message.UserInputMultiContent of the tool's message, and so is its text.
//
// Eino 0.7 has a data race in ToolsNode.Stream when a model calls several of such tools at once: prefer Generate to Stream.
func MultimodalTools(ws *workspaced.Workspace, list []workspaced.ToolInfo, call workspaced.ToolCall) ([]tool.BaseTool, error) {
	return made(ws, list, call, func(c caller) tool.BaseTool { return multimodalTool{c} })
}

// UnknownTool tells a model that there is no tool of that name, instead of ending the run. It is for
// compose.ToolsNodeConfig.UnknownToolsHandler.
func UnknownTool(_ context.Context, name, _ string) (string, error) {
	return fmt.Sprintf("Error: there is no tool %q", name), nil
}

func made(
	ws *workspaced.Workspace, list []workspaced.ToolInfo, call workspaced.ToolCall, wrap func(caller) tool.BaseTool,
) ([]tool.BaseTool, error) {
	tools := make([]tool.BaseTool, 0, len(list))
	for _, listed := range list {
		parameters, err := parameters(listed.InputSchema)
		if err != nil {
			return nil, fmt.Errorf("input schema of the tool %q: %w", listed.Name, err)
		}
		info := &schema.ToolInfo{Name: listed.Name, Desc: listed.Description, ParamsOneOf: parameters}
		tools = append(tools, wrap(caller{ws.Tools(), info, call}))
	}
	return tools, nil
}

// caller is what both kinds of tools have.
type caller struct {
	tools *workspaced.Tools
	info  *schema.ToolInfo
	call  workspaced.ToolCall
}

// Info describes the tool to a model.
func (c caller) Info(context.Context) (*schema.ToolInfo, error) { return c.info, nil }

// run gives the blocks that the model is to see.
func (c caller) run(ctx context.Context, arguments string) ([]workspaced.Block, error) {
	var input any
	if arguments != "" { // what some models give for no arguments
		input = json.RawMessage(arguments)
	}
	call := c.call
	if id := compose.GetToolCallID(ctx); id != "" {
		call.ID = id
	}
	result, err := c.tools.Call(ctx, c.info.Name, input, call)
	switch {
	case err == nil:
		return result.Blocks, nil
	case actionable(err):
		return []workspaced.Block{workspaced.TextBlock{Text: "Error: " + err.Error()}}, nil
	default:
		return nil, err
	}
}

// actionable tells whether another call by the model may do better.
func actionable(err error) bool {
	for _, class := range []error{
		workspaced.ErrInvalidArgument, workspaced.ErrToolNotFound, workspaced.ErrMCPUnavailable, workspaced.ErrAlreadyExists,
	} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

type multimodalTool struct{ caller }

var _ tool.EnhancedInvokableTool = multimodalTool{}

func (t multimodalTool) InvokableRun(ctx context.Context, argument *schema.ToolArgument, _ ...tool.Option) (*schema.ToolResult, error) {
	blocks, err := t.run(ctx, argument.Text)
	if err != nil {
		return nil, err
	}
	return &schema.ToolResult{Parts: parts(blocks)}, nil
}

type textTool struct{ caller }

var _ tool.InvokableTool = textTool{}

func (t textTool) InvokableRun(ctx context.Context, arguments string, _ ...tool.Option) (string, error) {
	blocks, err := t.run(ctx, arguments)
	if err != nil {
		return "", err
	}
	return text(blocks), nil
}
