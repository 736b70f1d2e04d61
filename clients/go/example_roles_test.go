package workspaced_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"strings"
	"testing/fstest"

	"github.com/workspaced/workspaced/clients/go"
)

// example makes a workspace, which the returned function deletes.
func example(ctx context.Context) (*workspaced.Workspace, func()) {
	client, err := workspaced.Dial(os.Getenv("WORKSPACED_TEST_SERVER"))
	if err != nil {
		log.Panic(err)
	}
	ws, err := client.Initialize(ctx, workspaced.InitializeOptions{Backend: workspaced.BackendLocal})
	if err != nil {
		log.Panic(err)
	}
	return ws, func() {
		if err := errors.Join(ws.Delete(ctx, workspaced.DeleteOptions{}), client.Close()); err != nil {
			log.Panic(err)
		}
	}
}

func ExampleFiles() {
	ctx := context.Background()
	ws, done := example(ctx)
	defer done()
	files := ws.Files()

	info, err := files.Write(ctx, "notes/todo.txt", []byte("sing\ndance\n"), workspaced.CreateOnly())
	if err != nil {
		log.Panic(err)
	}
	// Only if nobody has changed it since.
	if _, err := files.Write(ctx, "notes/todo.txt", []byte("sleep\n"), workspaced.IfMatch(info.SHA256)); err != nil {
		log.Panic(err)
	}
	_, err = files.Write(ctx, "notes/todo.txt", nil, workspaced.IfMatch(info.SHA256))
	fmt.Println(errors.Is(err, workspaced.ErrContentChanged))

	for entry, err := range files.List(ctx, "", workspaced.Recursive()) {
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(entry.Path, entry.IsDir())
	}
	// Output:
	// true
	// notes true
	// notes/todo.txt false
}

func ExampleFiles_Open() {
	ctx := context.Background()
	ws, done := example(ctx)
	defer done()
	if _, err := ws.Files().WriteFrom(ctx, "lines", strings.NewReader("one\ntwo\nthree\n")); err != nil {
		log.Panic(err)
	}

	file, err := ws.Files().Open(ctx, "lines")
	if err != nil {
		log.Panic(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fmt.Println(lines.Text())
	}
	last, err := io.ReadAll(io.NewSectionReader(file, 8, 100))
	fmt.Printf("%q %v\n", last, err)
	// Output:
	// one
	// two
	// three
	// "three\n" <nil>
}

func ExampleFiles_Create() {
	ctx := context.Background()
	ws, done := example(ctx)
	defer done()

	w, err := ws.Files().Create(ctx, "squares.csv")
	if err != nil {
		log.Panic(err)
	}
	defer w.Abort() // does nothing after Close
	for i := range 3 {
		if _, err := fmt.Fprintf(w, "%d,%d\n", i, i*i); err != nil {
			log.Panic(err)
		}
	}
	if err := w.Close(); err != nil { // from now on it is there
		log.Panic(err)
	}
	fmt.Println(w.Info().Name(), w.Info().Size())
	// Output: squares.csv 12
}

func ExampleWorkspace_FS() {
	ctx := context.Background()
	ws, done := example(ctx)
	defer done()
	for _, name := range []string{"main.go", "pkg/a.go", "pkg/README"} {
		if _, err := ws.Files().Write(ctx, name, []byte("package x\n")); err != nil {
			log.Panic(err)
		}
	}

	fsys := ws.FS(ctx)
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".go") {
			fmt.Println(name)
		}
		return err
	})
	_, missing := fs.ReadFile(fsys, "none.go")
	fmt.Println(err, errors.Is(missing, fs.ErrNotExist))
	// Output:
	// main.go
	// pkg/a.go
	// <nil> true
}

func ExampleTools() {
	ctx := context.Background()
	ws, done := example(ctx)
	defer done()
	tools := ws.As("coder", "s1").Tools()

	list, err := tools.List(ctx, workspaced.ListToolsOptions{Kind: workspaced.ToolBuiltin})
	if err != nil {
		log.Panic(err)
	}
	for _, tool := range list.Tools { // what a model wants
		if tool.Name == "Bash" {
			fmt.Println(tool.Name, tool.InputSchema["required"])
		}
	}
	input := json.RawMessage(`{"command": "echo hello > f; cat f"}`) // what it gives
	result, err := tools.Call(ctx, "Bash", input, workspaced.ToolCall{OffloadOverBytes: 100_000})
	if err != nil {
		log.Panic(err)
	}
	fmt.Printf("%q %v\n", result.Text(), result.IsError)
	// Output:
	// Bash [command]
	// "hello\n[exit code 0]" false
}

func ExampleSkills_Add() {
	ctx := context.Background()
	ws, done := example(ctx)
	defer done()

	skill := fstest.MapFS{ // or os.DirFS, or a part of an embed.FS
		"SKILL.md": {Data: []byte("---\nname: counting\ndescription: How to count.\n---\nBegin with one.\n")},
	}
	info, err := ws.As("coder", "").Skills().Add(ctx, skill, workspaced.AddSkillOptions{})
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(info.Name, "-", info.Description)
	// Output: counting - How to count.
}

func ExampleOffload() {
	ctx := context.Background()
	ws, done := example(ctx)
	defer done()

	path, err := ws.Offload().Context(ctx, "s1", []workspaced.Message{
		{Role: workspaced.RoleUser, Content: []workspaced.Block{workspaced.TextBlock{Text: "hello"}}},
		{Role: workspaced.RoleAssistant, Content: []workspaced.Block{
			workspaced.ToolCallBlock{ID: "c1", Name: "Bash", Input: map[string]any{"command": "ls"}},
		}},
	}, workspaced.OffloadOptions{})
	if err != nil {
		log.Panic(err)
	}
	for message, err := range ws.Offload().Messages(ctx, path, workspaced.MessagesOptions{}) {
		if err != nil {
			log.Panic(err)
		}
		for _, block := range message.Content {
			switch block := block.(type) {
			case workspaced.TextBlock:
				fmt.Println(message.Role, "says", block.Text)
			case workspaced.ToolCallBlock:
				fmt.Println(message.Role, "calls", block.Name, block.Input["command"])
			}
		}
	}
	// Output:
	// user says hello
	// assistant calls Bash ls
}

func ExampleClient_Acquire() {
	ctx := context.Background()
	client, err := workspaced.Dial(os.Getenv("WORKSPACED_TEST_SERVER"))
	if err != nil {
		log.Panic(err)
	}
	defer client.Close()

	lease, err := client.Acquire(ctx, workspaced.AcquireOptions{
		Policy: workspaced.PerSession, UserID: "ada", AgentID: "coder", SessionID: "go-example", Backend: workspaced.BackendLocal,
	})
	if err != nil {
		log.Panic(err)
	}
	ws := lease.Workspace()
	if _, err := ws.Files().Write(ctx, "f", []byte("x")); err != nil {
		log.Panic(err)
	}
	found, err := ws.Files().Exists(ctx, "f")
	fmt.Println(found, err)

	if err := lease.Release(ctx); err != nil { // its idle time begins
		log.Panic(err)
	}
	if err := ws.Delete(ctx, workspaced.DeleteOptions{}); err != nil {
		log.Panic(err)
	}
	// Output: true <nil>
}
