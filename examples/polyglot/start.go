// The first of three programs that work in one workspace: starts a web server in it, which outlives this program.
package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	workspaced "github.com/workspaced/workspaced/clients/go"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	client, err := workspaced.Dial(cmp.Or(os.Getenv("WORKSPACED_SERVER"), "127.0.0.1:7420"))
	if err != nil {
		return err
	}
	defer client.Close()
	lease, err := client.Acquire(ctx, workspaced.AcquireOptions{
		Policy: workspaced.PerSession, UserID: "ada", AgentID: "web", SessionID: "polyglot",
		Backend: workspaced.Backend(cmp.Or(os.Getenv("BACKEND"), "local")), Image: os.Getenv("IMAGE"),
	})
	if err != nil {
		return err
	}
	defer lease.Release(ctx)
	ws := lease.Workspace()

	if _, err := ws.Files().Write(ctx, "index.html", []byte("Hello from Go\n")); err != nil {
		return err
	}
	// The id is the way to it for the other programs, and makes this repeatable: it is started once.
	server := workspaced.Argv("python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", cmp.Or(os.Getenv("PORT"), "8000"))
	server.ID = "dev-server"
	process, err := ws.Start(ctx, server)
	if err != nil {
		return err
	}
	defer process.Close()
	ready, err := bufio.NewReader(process.Stdout).ReadString('\n')
	fmt.Printf("dev-server: %s", ready)
	return err
}
