package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	workspaced "github.com/workspaced/workspaced/clients/go"
)

func main() {
	ctx := context.Background()
	client := must(workspaced.Dial(append(os.Args, "127.0.0.1:7420")[1]))
	defer client.Close()
	ws := must(client.Initialize(ctx, workspaced.InitializeOptions{Backend: workspaced.BackendLocal}))
	must(ws.Files().Write(ctx, "count.sh", []byte("for n in 1 2 3; do echo $n; sleep 0.1; done\n")))
	process := must(ws.Exec(ctx, workspaced.Shell("sh count.sh")))
	must(io.Copy(os.Stdout, process.Stdout)) // as it comes
	must(0, process.Wait(ctx))
	exit, _ := process.Exit()
	fmt.Println("exit code", exit.Code)
	for _, tool := range must(ws.Tools().List(ctx, workspaced.ListToolsOptions{})).Tools {
		fmt.Println(tool.Name) // for a model, with tool.Description and tool.InputSchema
	}
	input := map[string]any{"command": "wc -l count.sh"} // what a model might ask for
	result := must(ws.Tools().Call(ctx, "Bash", input, workspaced.ToolCall{}))
	fmt.Println(result.Text())
	must(0, ws.Delete(ctx, workspaced.DeleteOptions{}))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
