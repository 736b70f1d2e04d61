// An agent of Eino with the tools of a workspace: it writes a program, runs it, mends it with Edit and runs it again.
//
//	go run ./example [address]
//
// Its model is scripted, so that it needs none; put one of eino-ext in its place.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"

	workspaced "github.com/workspaced/workspaced/clients/go"
	"github.com/workspaced/workspaced/clients/go/eino"
	"github.com/workspaced/workspaced/clients/go/eino/internal/scripted"
)

func main() {
	address := "127.0.0.1:7420"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	if err := run(context.Background(), address); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, address string) error {
	client, err := workspaced.Dial(address)
	if err != nil {
		return err
	}
	defer client.Close()
	ws, err := client.Initialize(ctx, workspaced.InitializeOptions{Backend: workspaced.BackendLocal})
	if err != nil {
		return err
	}
	defer ws.Delete(ctx, workspaced.DeleteOptions{AllowMissing: true})
	ws = ws.As("coder", "s1")

	list, err := ws.Tools().List(ctx, workspaced.ListToolsOptions{})
	if err != nil {
		return err
	}
	for _, missing := range list.MCPErrors {
		log.Print(missing)
	}
	tools, err := eino.Tools(ws, list.Tools, workspaced.ToolCall{OffloadOverBytes: 64 << 10})
	if err != nil {
		return err
	}
	instructions, err := ws.Instructions(ctx)
	if err != nil {
		return err
	}

	model := scripted.New(
		scripted.Use(scripted.Call("1", "Write", `{"file_path": "sum.sh", "content": "echo $((6 - 7))\n"}`)),
		scripted.Use(scripted.Call("2", "Bash", `{"command": "sh sum.sh"}`)),
		scripted.Use(scripted.Call("3", "Edit", `{"file_path": "sum.sh", "old_string": "-", "new_string": "*"}`)),
		scripted.Use(scripted.Call("4", "Bash", `{"command": "sh sum.sh"}`)),
		scripted.Say("It is mended."),
	)
	agent, err := react.NewAgent(ctx, &react.AgentConfig{
		ToolCallingModel: model,
		ToolsConfig:      compose.ToolsNodeConfig{Tools: tools, UnknownToolsHandler: eino.UnknownTool},
		MaxStep:          30,
	})
	if err != nil {
		return err
	}
	answer, err := agent.Generate(ctx, []*schema.Message{
		schema.SystemMessage(instructions), schema.UserMessage("Write a program that multiplies 6 by 7."),
	})
	if err != nil {
		return err
	}
	for _, message := range model.Asked()[4] {
		for _, call := range message.ToolCalls {
			fmt.Println(call.Function.Name, call.Function.Arguments)
		}
		if message.Role == schema.Tool {
			fmt.Println("  ->", message.Content)
		}
	}
	fmt.Println(answer.Content)
	return nil
}
