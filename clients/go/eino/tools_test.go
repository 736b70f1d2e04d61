package eino_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"
	"go.uber.org/goleak"

	workspaced "github.com/workspaced/workspaced/clients/go"
	"github.com/workspaced/workspaced/clients/go/eino"
	"github.com/workspaced/workspaced/clients/go/eino/internal/scripted"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newWorkspace makes a workspace of the Local backend, for an agent, which is gone after the test.
func newWorkspace(t *testing.T) *workspaced.Workspace {
	t.Helper()
	address := os.Getenv("WORKSPACED_TEST_SERVER")
	if address == "" {
		t.Skip("WORKSPACED_TEST_SERVER is not set")
	}
	client, err := workspaced.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	ws, err := client.Initialize(testContext(t), workspaced.InitializeOptions{Backend: workspaced.BackendLocal})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ws.Delete(testContext(t), workspaced.DeleteOptions{AllowMissing: true}); err != nil {
			t.Error(err)
		}
	})
	return ws.As("coder", "s1")
}

// withMCP adds the MCP server "support", which has a tool for each kind of result.
func withMCP(t *testing.T, ws *workspaced.Workspace) *workspaced.Workspace {
	t.Helper()
	var command []string
	if text := os.Getenv("WORKSPACED_TEST_MCP_SERVER"); text == "" {
		t.Skip("WORKSPACED_TEST_MCP_SERVER is not set: a JSON array, the program and its arguments")
	} else if err := json.Unmarshal([]byte(text), &command); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.MCPs().Add(testContext(t), workspaced.MCPServer{Name: "support", Command: command}); err != nil {
		t.Fatal(err)
	}
	return ws
}

func listed(t *testing.T, ws *workspaced.Workspace) []workspaced.ToolInfo {
	t.Helper()
	list, err := ws.Tools().List(testContext(t), workspaced.ListToolsOptions{})
	if err != nil || len(list.MCPErrors) > 0 {
		t.Fatal(err, list.MCPErrors)
	}
	return list.Tools
}

type maker func(*workspaced.Workspace, []workspaced.ToolInfo, workspaced.ToolCall) ([]tool.BaseTool, error)

func newAgent(t *testing.T, ws *workspaced.Workspace, model *scripted.Model, make maker) *react.Agent {
	t.Helper()
	tools, err := make(ws, listed(t, ws), workspaced.ToolCall{})
	if err != nil {
		t.Fatal(err)
	}
	agent, err := react.NewAgent(testContext(t), &react.AgentConfig{
		ToolCallingModel: model,
		ToolsConfig:      compose.ToolsNodeConfig{Tools: tools, UnknownToolsHandler: eino.UnknownTool},
		MaxStep:          20,
	})
	if err != nil {
		t.Fatal(err)
	}
	return agent
}

// results are the texts of tool results that the model saw last, by the id of the call.
func results(model *scripted.Model) map[string]string {
	asked := model.Asked()
	found := map[string]string{}
	for _, message := range asked[len(asked)-1] {
		if message.Role != schema.Tool {
			continue
		}
		text := message.Content
		for _, part := range message.UserInputMultiContent {
			text += part.Text
		}
		found[message.ToolCallID] = text
	}
	return found
}

func question() []*schema.Message { return []*schema.Message{schema.UserMessage("Go on.")} }

func TestAgentUsesTools(t *testing.T) {
	for name, make := range map[string]maker{"text": eino.Tools, "multimodal": eino.MultimodalTools} {
		for _, mode := range []string{"generate", "stream"} {
			if name == "multimodal" && mode == "stream" {
				continue // several calls at once race in Eino 0.7
			}
			t.Run(name+"/"+mode, func(t *testing.T) {
				ws := newWorkspace(t)
				model := scripted.New(
					scripted.Use(scripted.Call("w", "Write", `{"file_path": "a", "content": "sixty\n"}`)),
					scripted.Use(
						scripted.Call("r", "Read", `{"file_path": "a"}`), scripted.Call("b", "Bash", `{"command": "cat a; exit 3"}`),
					),
					scripted.Say("done"),
				)
				answer := ask(t, newAgent(t, ws, model, make), mode)
				if answer != "done" {
					t.Errorf("answer %q", answer)
				}
				got := results(model)
				if !strings.Contains(got["r"], "sixty") || !strings.Contains(got["b"], "exit code 3") {
					t.Errorf("results %q", got)
				}
				data, err := ws.Files().Read(testContext(t), "a")
				if err != nil || string(data) != "sixty\n" {
					t.Errorf("the file is %q, %v", data, err)
				}
			})
		}
	}
}

func ask(t *testing.T, agent *react.Agent, mode string) string {
	t.Helper()
	if mode == "generate" {
		answer, err := agent.Generate(testContext(t), question())
		if err != nil {
			t.Fatal(err)
		}
		return answer.Content
	}
	stream, err := agent.Stream(testContext(t), question())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	text := ""
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text
		}
		if err != nil {
			t.Fatal(err)
		}
		text += piece.Content
	}
}

func TestWhatTheModelCanActOnIsAResult(t *testing.T) {
	ws := withMCP(t, newWorkspace(t))
	model := scripted.New(
		scripted.Use(
			scripted.Call("unknown", "Fly", `{}`),
			scripted.Call("malformed", "Read", `{"file_path": `),
			scripted.Call("misfit", "Read", `{"path": 3}`),
			scripted.Call("empty", "Read", ``),
			scripted.Call("missing", "Read", `{"file_path": "nowhere"}`),
			scripted.Call("failing", mcpTool("fail"), `{}`),
		),
		scripted.Use(scripted.Call("crashing", mcpTool("crash"), `{}`)),
		scripted.Say("I see."),
	)
	agent := newAgent(t, ws, model, eino.Tools)
	if _, err := agent.Generate(testContext(t), question()); err != nil {
		t.Fatal(err)
	}
	got := results(model)
	for id, want := range map[string]string{
		"unknown": `no tool "Fly"`, "malformed": "Error", "misfit": "does not fit", "empty": "file_path", "missing": "nowhere",
		"failing": "fail", "crashing": "Error",
	} {
		if !strings.Contains(got[id], want) {
			t.Errorf("%s: %q lacks %q", id, got[id], want)
		}
	}
}

func mcpTool(name string) string { return "mcp__support__" + name }

func TestToolThatIsGone(t *testing.T) {
	ws := withMCP(t, newWorkspace(t))
	model := scripted.New(scripted.Use(scripted.Call("1", mcpTool("counter"), "")), scripted.Say("I see."))
	agent := newAgent(t, ws, model, eino.Tools)
	if _, err := ws.MCPs().Remove(testContext(t), "support"); err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Generate(testContext(t), question()); err != nil {
		t.Fatal(err)
	}
	if got := results(model)["1"]; !strings.Contains(got, "Error") {
		t.Errorf("result %q", got)
	}
}

func TestImagesAreForTheModel(t *testing.T) {
	ws := withMCP(t, newWorkspace(t))
	script := func() *scripted.Model {
		return scripted.New(
			scripted.Use(scripted.Call("i", mcpTool("image"), `{}`), scripted.Call("s", mcpTool("sound"), `{}`)), scripted.Say("Nice."),
		)
	}
	model := script()
	if _, err := newAgent(t, ws, model, eino.MultimodalTools).Generate(testContext(t), question()); err != nil {
		t.Fatal(err)
	}
	seen := map[string][]schema.MessageInputPart{}
	for _, message := range model.Asked()[1] {
		seen[message.ToolCallID] = message.UserInputMultiContent
	}
	if image := seen["i"]; len(image) != 1 || image[0].Image == nil || image[0].Image.MIMEType != "image/png" {
		t.Fatalf("image: %+v", image)
	} else if data, err := base64.StdEncoding.DecodeString(*image[0].Image.Base64Data); err != nil || string(data[1:4]) != "PNG" {
		t.Errorf("image: %q, %v", data, err)
	}
	if sound := seen["s"]; len(sound) != 2 || sound[0].Text != "listen" || sound[1].Audio.MIMEType != "audio/wav" {
		t.Errorf("sound: %+v", sound)
	}

	model = script()
	if _, err := newAgent(t, ws, model, eino.Tools).Generate(testContext(t), question()); err != nil {
		t.Fatal(err)
	}
	got := results(model)
	if got["i"] != "[image/png of 72 bytes]" || got["s"] != "listen\n[audio/wav of 4 bytes]" {
		t.Errorf("in words: %q", got)
	}
}

func TestSchemasStayWhole(t *testing.T) {
	ws := withMCP(t, newWorkspace(t))
	list := listed(t, ws)
	older := map[string]any{
		"type": "object", "definitions": map[string]any{"name": map[string]any{"type": "string"}},
		"properties": map[string]any{"name": map[string]any{"$ref": "#/definitions/name"}},
	}
	list = append(list, workspaced.ToolInfo{Name: "older", InputSchema: older}, workspaced.ToolInfo{Name: "nothing"})
	tools, err := eino.Tools(ws, list, workspaced.ToolCall{})
	if err != nil {
		t.Fatal(err)
	}
	for i, one := range tools {
		info, err := one.Info(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if info.Name != list[i].Name || info.Desc != list[i].Description {
			t.Errorf("%s: %+v", list[i].Name, info)
		}
		parameters, err := info.ToJSONSchema()
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := json.Marshal(parameters)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if list[i].InputSchema != nil {
			if err := json.Unmarshal(encoded, &got); err != nil {
				t.Fatalf("%s: %s", encoded, err)
			}
		}
		if !reflect.DeepEqual(got, list[i].InputSchema) {
			t.Errorf("%s:\n got %v\nwant %v", info.Name, got, list[i].InputSchema)
		}
	}
	odd := workspaced.ToolInfo{Name: "odd", InputSchema: map[string]any{"type": 7.0}}
	if _, err := eino.Tools(ws, []workspaced.ToolInfo{odd}, workspaced.ToolCall{}); err == nil || !strings.Contains(err.Error(), `"odd"`) {
		t.Errorf("a schema that is none: %v", err)
	}
}

func TestWorkspaceThatIsGoneEndsTheRun(t *testing.T) {
	ws := newWorkspace(t)
	model := scripted.New(scripted.Use(scripted.Call("1", "Bash", `{"command": "true"}`)))
	agent := newAgent(t, ws, model, eino.Tools)
	if err := ws.Delete(testContext(t), workspaced.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Generate(testContext(t), question()); !errors.Is(err, workspaced.ErrWorkspaceNotFound) {
		t.Errorf("the run ended with %v", err)
	}
}

func TestCancelledRunStopsTheTool(t *testing.T) {
	ws := newWorkspace(t)
	model := scripted.New(scripted.Use(scripted.Call("1", "Bash", `{"command": "echo begun > begun; exec sleep 600"}`)))
	agent := newAgent(t, ws, model, eino.Tools)
	ctx, cancel := context.WithCancel(testContext(t))
	ended := make(chan error, 1)
	go func() {
		_, err := agent.Generate(ctx, question())
		ended <- err
	}()
	for _, err := range ws.Files().Watch(testContext(t), ".") {
		if err != nil {
			t.Fatal(err)
		}
		if begun, err := ws.Files().Exists(testContext(t), "begun"); err != nil || begun {
			break
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, workspaced.ErrCancelled) && !errors.Is(err, context.Canceled) {
		t.Errorf("the run ended with %v", err)
	}
	running, err := ws.Processes(testContext(t), workspaced.ProcessRunning)
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range running {
		var exit *workspaced.ExitError
		if err := ws.Process(process.ID).Wait(testContext(t)); !errors.As(err, &exit) {
			t.Errorf("%s ended with %v", process.ID, err)
		}
	}
}
