package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"maps"
	"slices"

	"github.com/workspaced/workspaced/clients/go"
)

func init() {
	register(map[string]operation{
		"list_tools":    listTools,
		"tool_schema":   toolSchema,
		"call_tool":     callTool,
		"add_mcp":       addMCP,
		"list_mcps":     listMCPs,
		"remove_mcp":    removeMCP,
		"mcp_resources": mcpResources,
		"read_resource": readResource,
		"mcp_prompts":   mcpPrompts,
		"get_prompt":    getPrompt,
		"instructions":  instructions,
		"purge_session": purgeSession,
		"purge_agent":   purgeAgent,
	})
	scopes["tool"] = func(ctx context.Context, s *session, a args, item func() bool) error {
		for _, err := range s.as(a).Tools().Events(ctx, a.str("name", ""), a["input"], workspaced.ToolCall{}) {
			if err != nil || !item() {
				return err
			}
		}
		return nil
	}
}

// as is the workspace for the agent and session of a request.
func (s *session) as(a args) *workspaced.Workspace {
	return s.workspace(a).As(a.str("agent_id", ""), a.str("session_id", ""))
}

func (a args) toolOptions() workspaced.ListToolsOptions {
	return workspaced.ListToolsOptions{Kind: workspaced.ToolKind(a.str("kind", "")), MCP: a.str("mcp", "")}
}

func listTools(ctx context.Context, s *session, a args) (any, error) {
	list, err := s.as(a).Tools().List(ctx, a.toolOptions())
	if err != nil {
		return nil, err
	}
	names, failures := []string{}, map[string]string{}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	for _, failed := range list.MCPErrors {
		failures[failed.MCP] = failed.Reason
	}
	return object{"names": names, "failures": failures}, nil
}

func toolSchema(ctx context.Context, s *session, a args) (any, error) {
	list, err := s.as(a).Tools().List(ctx, workspaced.ListToolsOptions{})
	if err != nil {
		return nil, err
	}
	for _, tool := range list.Tools {
		if tool.Name == a.str("name", "") {
			return object{
				"description": tool.Description, "input_schema": tool.InputSchema, "kind": tool.Kind, "read_only": tool.ReadOnly,
			}, nil
		}
	}
	return nil, driverBug("no tool " + a.str("name", ""))
}

func callTool(ctx context.Context, s *session, a args) (any, error) {
	tools, kinds := s.as(a).Tools(), map[string]bool{}
	call := workspaced.ToolCall{
		Timeout: a.seconds("tool_timeout"), OffloadOverBytes: int64(a.integer("offload_over_bytes", 0)), ID: a.str("call_id", ""),
	}
	name, input := a.str("name", ""), a["input"]
	if !a.flag("as_stream") {
		result, err := tools.Call(ctx, name, input, call)
		if err != nil {
			return nil, err
		}
		return toolResult(result, kinds), nil
	}
	for event, err := range tools.Events(ctx, name, input, call) {
		if err != nil {
			return nil, err
		}
		switch event := event.(type) {
		case *workspaced.ToolResult:
			return toolResult(event, kinds), nil
		case workspaced.ToolProcess:
			kinds["process"] = true
		case workspaced.ToolText:
			kinds["text"] = true
		case workspaced.ToolData:
			kinds["data"] = true
		case workspaced.ToolProgress:
			kinds["progress"] = true
		case workspaced.ToolLog:
			kinds["log"] = true
		}
	}
	return nil, driverBug("a tool's events ended without a result")
}

func toolResult(result *workspaced.ToolResult, kinds map[string]bool) object {
	blocks := []any{}
	for _, block := range blocksOf(result.Blocks) {
		blocks = append(blocks, block["type"])
	}
	shown := object{
		"text": result.Text(), "is_error": result.IsError, "state": result.State, "structured": nil, "blocks": blocks,
		"offloaded": result.Offloaded, "events": []string{},
	}
	if result.Structured != nil {
		shown["structured"] = result.Structured
	}
	if len(kinds) > 0 {
		shown["events"] = slices.Sorted(maps.Keys(kinds))
	}
	return shown
}

func addMCP(ctx context.Context, s *session, a args) (any, error) {
	info, err := s.as(a).MCPs().Add(ctx, workspaced.MCPServer{
		Name: a.str("name", ""), Command: a.list("stdio"), Env: a.table("env"), URL: a.str("http", ""), Headers: a.table("headers"),
		EnabledTools: a.list("enabled_tools"), DisabledTools: a.list("disabled_tools"), CallTimeout: a.seconds("call_timeout"),
	})
	if err != nil {
		return nil, err
	}
	return object{
		"name": info.Server.Name, "state": info.State, "server_name": info.ServerName, "tool_count": info.ToolCount,
	}, nil
}

func listMCPs(ctx context.Context, s *session, a args) (any, error) {
	found, err := s.as(a).MCPs().List(ctx, workspaced.ListMCPsOptions{NoStart: a.has("start") && !a.flag("start")})
	if err != nil {
		return nil, err
	}
	names, states, failures := []string{}, object{}, object{}
	for _, info := range found {
		names = append(names, info.Server.Name)
		states[info.Server.Name] = info.State
		if info.Error != nil {
			failures[info.Server.Name] = info.Error.Reason
		}
	}
	return object{"names": names, "states": states, "errors": failures}, nil
}

func removeMCP(ctx context.Context, s *session, a args) (any, error) {
	type option = workspaced.RemoveMCPOption
	options := given(nil, a.flag("allow_missing"), func() option { return workspaced.AllowMissing() })
	removed, err := s.as(a).MCPs().Remove(ctx, a.str("name", ""), options...)
	return object{"removed": removed}, err
}

func mcpResources(ctx context.Context, s *session, a args) (any, error) {
	found, err := s.as(a).MCPs().Resources(ctx, a.str("mcp", ""))
	uris := []string{}
	for _, item := range found {
		if item.URI == "" {
			item.URI = item.URITemplate
		}
		uris = append(uris, item.URI)
	}
	slices.Sort(uris)
	return object{"uris": uris}, err
}

func readResource(ctx context.Context, s *session, a args) (any, error) {
	options := workspaced.ReadResourceOptions{OffloadOverBytes: int64(a.integer("offload_over_bytes", 0))}
	parts, err := s.as(a).MCPs().ReadResource(ctx, a.str("mcp", ""), a.str("uri", ""), options)
	contents := []object{}
	for _, part := range parts {
		shown := object{"uri": part.URI}
		switch {
		case part.Path != "":
			shown["path"] = part.Path
		case part.Data != nil:
			shown["data"] = base64.StdEncoding.EncodeToString(part.Data)
		default:
			shown["text"] = part.Text
		}
		contents = append(contents, shown)
	}
	return object{"contents": contents}, err
}

func mcpPrompts(ctx context.Context, s *session, a args) (any, error) {
	found, err := s.as(a).MCPs().Prompts(ctx, a.str("mcp", ""))
	names := []string{}
	for _, prompt := range found {
		names = append(names, prompt.Name)
	}
	slices.Sort(names)
	return object{"names": names}, err
}

func getPrompt(ctx context.Context, s *session, a args) (any, error) {
	found, err := s.as(a).MCPs().Prompt(ctx, a.str("mcp", ""), a.str("name", ""), a.table("arguments"))
	return object{"messages": messagesOf(found)}, err
}

func instructions(ctx context.Context, s *session, a args) (any, error) {
	text, err := s.as(a).Instructions(ctx)
	return object{"text": text}, err
}

func purgeSession(ctx context.Context, s *session, a args) (any, error) {
	return object{}, s.as(a).PurgeSession(ctx)
}

func purgeAgent(ctx context.Context, s *session, a args) (any, error) {
	return object{}, s.as(a).PurgeAgent(ctx)
}

func init() {
	register(map[string]operation{
		"add_skill":      addSkill,
		"list_skills":    listSkills,
		"get_skill":      getSkill,
		"remove_skill":   removeSkill,
		"skill_problems": skillProblems,
	})
}

func addSkill(ctx context.Context, s *session, a args) (any, error) {
	skills, options := s.as(a).Skills(), workspaced.AddSkillOptions{Replace: a.flag("replace")}
	var info workspaced.SkillInfo
	var err error
	if a.has("archive") {
		info, err = skills.AddArchive(ctx, bytes.NewReader(a.bytes("archive")), options)
	} else {
		info, err = skills.AddPath(ctx, a.str("local", ""), options)
	}
	if err != nil {
		return nil, err
	}
	return object{"name": info.Name, "description": info.Description, "path": info.Path}, nil
}

func listSkills(ctx context.Context, s *session, a args) (any, error) {
	found, err := s.as(a).Skills().List(ctx)
	names := []string{}
	for _, info := range found {
		names = append(names, info.Name)
	}
	slices.Sort(names)
	return object{"names": names}, err
}

func getSkill(ctx context.Context, s *session, a args) (any, error) {
	skill, err := s.as(a).Skills().Get(ctx, a.str("name", ""))
	files := []string{}
	for _, file := range skill.Files {
		files = append(files, file.Path)
	}
	slices.Sort(files)
	return object{
		"name": skill.Name, "description": skill.Description, "markdown": skill.Markdown, "files": files,
	}, err
}

func removeSkill(ctx context.Context, s *session, a args) (any, error) {
	type option = workspaced.RemoveSkillOption
	options := given(nil, a.flag("allow_missing"), func() option { return workspaced.AllowMissing() })
	removed, err := s.as(a).Skills().Remove(ctx, a.str("name", ""), options...)
	return object{"removed": removed}, err
}

func skillProblems(ctx context.Context, s *session, a args) (any, error) {
	found, err := s.as(a).Skills().Problems(ctx)
	reasons := []string{}
	for _, problem := range found {
		reasons = append(reasons, problem.Reason)
	}
	slices.Sort(reasons)
	return object{"reasons": reasons}, err
}
