package workspaced

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"
)

func TestTools(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	list, err := ws.Tools().List(ctx, ListToolsOptions{Kind: ToolBuiltin})
	if err != nil || len(list.Tools) == 0 || list.Tools[0].InputSchema["type"] != "object" {
		t.Fatalf("%+v, %v", list, err)
	}
	var progress []string
	result, err := ws.Tools().Call(ctx, "Bash", json.RawMessage(`{"command": "echo one; echo two; exit 3"}`), ToolCall{
		ID:      "call-1",
		OnEvent: func(event ToolEvent) { progress = append(progress, fmt.Sprintf("%T", event)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if !result.IsError || !strings.Contains(result.Text(), "one\ntwo\n") || result.Structured["exit_code"] != 3.0 || result.CallID != "call-1" {
		t.Errorf("%+v", result)
	}
	if seen := strings.Join(progress, " "); !strings.HasPrefix(seen, "workspaced.ToolProcess workspaced.ToolText") {
		t.Errorf("events: %s", seen)
	}
	for name, test := range map[string]struct {
		tool  string
		input any
		call  ToolCall
		want  error
	}{
		"no such tool":  {"None", nil, ToolCall{}, ErrToolNotFound},
		"no object":     {"Bash", []int{1}, ToolCall{}, ErrInvalidArgument},
		"cannot encode": {"Bash", func() {}, ToolCall{}, ErrInvalidArgument},
	} {
		if _, err := ws.Tools().Call(ctx, test.tool, test.input, test.call); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	timed, err := ws.Tools().Call(ctx, "Bash", map[string]any{"command": "echo begun; sleep 100"}, ToolCall{Timeout: time.Second})
	if err != nil || timed.State != ToolInterrupted || !strings.Contains(timed.Text(), "begun") {
		t.Errorf("%+v, %v", timed, err)
	}
	stored, err := ws.As("a", "s").Tools().Call(ctx, "Bash", map[string]any{"command": "seq 10000"}, ToolCall{OffloadOverBytes: 1000})
	if err != nil || stored.Offloaded == "" {
		t.Fatalf("%+v, %v", stored, err)
	}
	if whole, err := ws.Files().Read(ctx, stored.Offloaded); err != nil || !bytes.Contains(whole, []byte("\n10000\n")) {
		t.Errorf("%d bytes, %v", len(whole), err)
	}
}

func TestLeavingTheEventsStopsTheTool(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	for event, err := range ws.Tools().Events(ctx, "Bash", map[string]any{"command": "touch runs; sleep 100; touch done"}, ToolCall{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, begun := event.(ToolProcess); begun {
			break
		}
	}
	// The server ends it after the call.
	for {
		list, err := ws.Processes(ctx, ProcessRunning)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			return
		}
	}
}

const diceServer = `
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    method = request["method"]
    if method == "initialize":
        result = {"protocolVersion": request["params"]["protocolVersion"],
                  "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
                  "serverInfo": {"name": "dice", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "roll", "description": "Roll a die.", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": "4"}]}
    elif method == "resources/list":
        result = {"resources": [{"uri": "dice://rules", "name": "rules"}]}
    elif method == "resources/templates/list":
        result = {"resourceTemplates": []}
    elif method == "resources/read":
        result = {"contents": [{"uri": "dice://rules", "text": "be lucky"}]}
    elif method == "prompts/list":
        result = {"prompts": [{"name": "wish", "arguments": [{"name": "for", "required": True}]}]}
    elif method == "prompts/get":
        text = "wish for " + request["params"]["arguments"]["for"]
        result = {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
`

func TestMCPs(t *testing.T) {
	ws := newWorkspace(t).As("coder", "s1")
	ctx := testContext(t)
	if _, err := ws.Files().Write(ctx, "dice.py", []byte(diceServer)); err != nil {
		t.Fatal(err)
	}
	dice := MCPServer{Name: "dice", Command: []string{"python3", "dice.py"}, Env: map[string]string{"SEED": "7"}}
	info, err := ws.MCPs().Add(ctx, dice)
	if err != nil || info.State != MCPReady || info.ServerName != "dice" || info.ToolCount != 1 || info.Server.Command[1] != "dice.py" {
		t.Fatalf("%+v, %v", info, err)
	}
	if info.Server.Env["SEED"] == "7" {
		t.Error("a secret came back")
	}
	dice.Stateless = true
	if _, err := ws.MCPs().Add(ctx, dice); !errors.Is(err, ErrMCPExists) {
		t.Errorf("got %v", err)
	}
	if _, err := ws.MCPs().Add(ctx, MCPServer{Name: "none", Command: []string{"/no/such/program"}}); !errors.Is(err, ErrMCPStartFailed) {
		t.Errorf("got %v", err)
	}
	for _, wrong := range []MCPServer{
		{Name: "x"}, {Name: "x", Command: []string{"a"}, URL: "http://b"},
		{Name: "x", Command: []string{"a"}, Headers: map[string]string{"h": "v"}}, {Name: "x", URL: "http://b", Dir: "d"},
	} {
		if _, err := ws.MCPs().Add(ctx, wrong); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	tools, err := ws.Tools().List(ctx, ListToolsOptions{MCP: "dice"})
	if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Kind != ToolMCP {
		t.Fatalf("%+v, %v", tools, err)
	}
	if result, err := ws.Tools().Call(ctx, tools.Tools[0].Name, nil, ToolCall{}); err != nil || result.Text() != "4" {
		t.Errorf("%+v, %v", result, err)
	}
	if found, err := ws.MCPs().Resources(ctx, "dice"); err != nil || len(found) != 1 || found[0].URI != "dice://rules" || found[0].Size != -1 {
		t.Errorf("%+v, %v", found, err)
	}
	if parts, err := ws.MCPs().ReadResource(ctx, "dice", "dice://rules", ReadResourceOptions{}); err != nil || parts[0].Text != "be lucky" {
		t.Errorf("%+v, %v", parts, err)
	}
	if found, err := ws.MCPs().Prompts(ctx, ""); err != nil || len(found) != 1 || !found[0].Arguments[0].Required {
		t.Errorf("%+v, %v", found, err)
	}
	messages, err := ws.MCPs().Prompt(ctx, "dice", "wish", map[string]string{"for": "a six"})
	if err != nil || messages[0].Role != RoleUser || messages[0].Content[0].(TextBlock).Text != "wish for a six" {
		t.Errorf("%+v, %v", messages, err)
	}
	if found, err := ws.As("coder", "s2").MCPs().List(ctx, ListMCPsOptions{}); err != nil || len(found) != 0 {
		t.Errorf("another session has %+v, %v", found, err)
	}
	if removed, err := ws.MCPs().Remove(ctx, "dice"); err != nil || !removed {
		t.Errorf("%v, %v", removed, err)
	}
	if _, err := ws.MCPs().Remove(ctx, "dice"); !errors.Is(err, ErrMCPNotFound) {
		t.Errorf("got %v", err)
	}
	if removed, err := ws.MCPs().Remove(ctx, "dice", AllowMissing()); err != nil || removed {
		t.Errorf("%v, %v", removed, err)
	}
}

func TestDefaultMCPs(t *testing.T) {
	client := dialTest(t, testServer(t))
	ctx := testContext(t)
	ws, err := client.Initialize(ctx, InitializeOptions{
		Backend: BackendLocal, DefaultMCPs: []MCPServer{{Name: "far", URL: "http://localhost:1/mcp", SSE: true, CallTimeout: time.Second}},
	})
	if err != nil {
		t.Fatal(err)
	}
	found, err := ws.As("any", "one").MCPs().List(ctx, ListMCPsOptions{NoStart: true})
	if err != nil || len(found) != 1 || !found[0].Inherited || found[0].State != MCPIdle {
		t.Errorf("%+v, %v", found, err)
	}
	if server := found[0].Server; server.URL != "http://localhost:1/mcp" || !server.SSE || server.CallTimeout != time.Second {
		t.Errorf("%+v", server)
	}
	if err := ws.Delete(ctx, DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

const skillText = "---\nname: counting\ndescription: How to count.\nlevel: 3\n---\n# Counting\n"

func TestSkills(t *testing.T) {
	ws := newWorkspace(t).As("coder", "")
	ctx := testContext(t)
	source := fstest.MapFS{
		"SKILL.md":      {Data: []byte(skillText), Mode: 0o644},
		"bin/count.sh":  {Data: []byte("#!/bin/sh\nseq 3\n"), Mode: 0o755},
		"bin/latest.sh": {Data: []byte("count.sh"), Mode: fs.ModeSymlink | 0o777},
	}
	info, err := ws.Skills().Add(ctx, source, AddSkillOptions{})
	if err != nil || info.Name != "counting" || info.Metadata["level"] != 3.0 {
		t.Fatalf("%+v, %v", info, err)
	}
	if _, err := ws.Skills().Add(ctx, source, AddSkillOptions{}); err != nil {
		t.Errorf("the same again: %v", err)
	}
	detail, err := ws.Skills().Get(ctx, "counting")
	if err != nil || detail.Markdown != skillText || len(detail.Files) < 2 || !detail.Files[1].Executable {
		t.Errorf("%+v, %v", detail, err)
	}
	local := t.TempDir()
	if err := os.WriteFile(filepath.Join(local, "SKILL.md"), []byte(skillText+"more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.Skills().AddPath(ctx, local, AddSkillOptions{}); !errors.Is(err, ErrSkillExists) {
		t.Errorf("got %v", err)
	}
	if _, err := ws.Skills().AddPath(ctx, local, AddSkillOptions{Replace: true}); err != nil {
		t.Error(err)
	}
	if _, err := ws.Skills().AddPath(ctx, filepath.Join(local, "none"), AddSkillOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := ws.Skills().Add(ctx, fstest.MapFS{"README": {}}, AddSkillOptions{}); !errors.Is(err, ErrSkillInvalid) {
		t.Errorf("got %v", err)
	}
	if _, err := ws.Skills().AddArchive(ctx, strings.NewReader("no archive"), AddSkillOptions{}); !errors.Is(err, ErrArchiveInvalid) {
		t.Errorf("got %v", err)
	}
	var archive bytes.Buffer
	if err := packTar(&archive, source); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.As("other", "").Skills().AddArchive(ctx, &archive, AddSkillOptions{}); err != nil {
		t.Error(err)
	}
	if found, err := ws.Skills().List(ctx); err != nil || len(found) != 1 {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := ws.Files().Write(ctx, filepath.Join(filepath.Dir(info.Path), "broken", "SKILL.md"), []byte("nothing")); err != nil {
		t.Fatal(err)
	}
	if found, err := ws.Skills().Problems(ctx); err != nil || len(found) != 1 || found[0].Reason != "SKILL_FRONT_MATTER_INVALID" {
		t.Errorf("%+v, %v", found, err)
	}
	if removed, err := ws.Skills().Remove(ctx, "counting"); err != nil || !removed {
		t.Errorf("%v, %v", removed, err)
	}
	if _, err := ws.Skills().Get(ctx, "counting"); !errors.Is(err, ErrSkillNotFound) {
		t.Errorf("got %v", err)
	}
	if err := ws.PurgeAgent(ctx); err != nil {
		t.Error(err)
	}
}

func TestPackedTarHasNoOwners(t *testing.T) {
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "f"), []byte("x"), 0o640); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if err := packTar(&packed, os.DirFS(directory)); err != nil {
		t.Fatal(err)
	}
	header, err := tar.NewReader(&packed).Next()
	if err != nil || header.Name != "f" || header.Uid != 0 || header.Uname != "" || header.Mode != 0o640 {
		t.Errorf("%+v, %v", header, err)
	}
}

func TestOffload(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	messages := []Message{
		{Role: RoleUser, Name: "ada", Content: []Block{TextBlock{Text: "hello"}}, Metadata: map[string]any{"k": []string{"v"}}},
		{Role: RoleAssistant, Content: []Block{
			ThinkingBlock{Thinking: "hm", Signature: "s"},
			ToolCallBlock{ID: "c1", Name: "Bash", Input: map[string]any{"command": "ls"}},
			ToolResultBlock{ID: "c1", Name: "Bash", Output: []Block{TextBlock{Text: "f"}}, State: ToolError},
			HintBlock{Content: []Block{TextBlock{Text: "psst"}}, Source: "test"},
			DataBlock{MediaType: "image/png", Data: []byte("png")},
		}},
	}
	path, err := ws.Offload().Context(ctx, "s", messages, OffloadOptions{RequestID: "r1"})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ws.Offload().Context(ctx, "s", messages, OffloadOptions{RequestID: "r1"}); err != nil || again != path {
		t.Errorf("%v, %v", again, err)
	}
	got, err := collect(ws.Offload().Messages(ctx, path, MessagesOptions{}))
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got[0].Name != "ada" || fmt.Sprint(got[0].Metadata) != "map[k:[v]]" || got[0].CreateTime.IsZero() {
		t.Errorf("%+v", got[0])
	}
	data, ok := got[1].Content[4].(DataBlock)
	if !ok || data.Data != nil || !strings.HasPrefix(data.URL, "workspace:///data/") {
		t.Errorf("%+v", got[1].Content[4])
	}
	if stored, err := ws.Offload().Read(ctx, data.URL, ReadOffloadOptions{Offset: 1, Length: 1}); err != nil || string(stored) != "n" {
		t.Errorf("%q, %v", stored, err)
	}
	if result := got[1].Content[2].(ToolResultBlock); result.State != ToolError || result.Output[0].(TextBlock).Text != "f" {
		t.Errorf("%+v", result)
	}
	broken := errors.New("the source broke")
	_, err = ws.Offload().ContextFrom(ctx, "s", func(yield func(Message, error) bool) {
		_ = yield(messages[0], nil) && yield(Message{}, broken)
	}, OffloadOptions{})
	if err != broken {
		t.Errorf("got %v", err)
	}
	if got, err := collect(ws.Offload().Messages(ctx, path, MessagesOptions{Skip: 1, Limit: 5})); err != nil || len(got) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	result, err := ws.Offload().ToolResult(ctx, "s", ToolResultBlock{ID: "c1", Name: "Bash", Output: []Block{TextBlock{Text: "long"}}}, OffloadOptions{})
	if err != nil || !strings.HasSuffix(result, "tool_result-c1.txt") {
		t.Errorf("%q, %v", result, err)
	}
	block, err := ws.Offload().Data(ctx, bytes.NewReader(pattern(1<<20)), OffloadDataOptions{MediaType: "text/plain", Name: "n"})
	if err != nil || block.Name != "n" || block.URL == "" {
		t.Errorf("%+v, %v", block, err)
	}
	if _, err := ws.Offload().Data(ctx, strings.NewReader("x"), OffloadDataOptions{SHA256: strings.Repeat("0", 64)}); !errors.Is(err, ErrHashMismatch) {
		t.Errorf("got %v", err)
	}
	if found, err := ws.Offload().List(ctx, ListOffloadsOptions{Kind: OffloadContext, SessionID: "s"}); err != nil || len(found) != 1 {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := ws.Offload().Read(ctx, "none", ReadOffloadOptions{}); !errors.Is(err, ErrOffloadNotFound) {
		t.Errorf("got %v", err)
	}
	if err := ws.As("", "s").PurgeSession(ctx); err != nil {
		t.Error(err)
	}
	if found, err := ws.Offload().List(ctx, ListOffloadsOptions{SessionID: "s"}); err != nil || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestConcurrentAppendsAreAllThere(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	var running sync.WaitGroup
	for i := range 10 {
		running.Go(func() {
			message := Message{Role: RoleUser, Content: []Block{TextBlock{Text: fmt.Sprint(i)}}}
			if _, err := ws.Offload().Context(ctx, "s", []Message{message, message}, OffloadOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if got, err := collect(ws.Offload().Messages(ctx, "sessions/s/context.jsonl", MessagesOptions{})); err != nil || len(got) != 20 {
		t.Errorf("%d messages, %v", len(got), err)
	}
}

func TestInstructions(t *testing.T) {
	ws := newWorkspace(t)
	info, err := ws.Info(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	text, err := ws.As("a", "s").Instructions(testContext(t))
	if err != nil || !strings.Contains(text, info.Workdir) {
		t.Errorf("%q, %v", text, err)
	}
}
