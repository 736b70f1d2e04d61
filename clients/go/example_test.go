package workspaced_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/workspaced/workspaced/clients/go"
)

// exampleWorkspace is a workspace on the server that the tests use, and what ends it.
func exampleWorkspace() (*workspaced.Workspace, func()) {
	client, err := workspaced.Dial(os.Getenv("WORKSPACED_TEST_SERVER"))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	ws, err := client.Initialize(ctx, workspaced.InitializeOptions{Backend: workspaced.BackendLocal})
	if err != nil {
		log.Fatal(err)
	}
	return ws, func() {
		if err := ws.Delete(ctx, workspaced.DeleteOptions{}); err != nil {
			log.Fatal(err)
		}
		if err := client.Close(); err != nil {
			log.Fatal(err)
		}
	}
}

func Example() {
	ctx := context.Background()
	client, err := workspaced.Dial(os.Getenv("WORKSPACED_TEST_SERVER"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ws, err := client.Initialize(ctx, workspaced.InitializeOptions{Backend: workspaced.BackendLocal})
	if err != nil {
		log.Fatal(err)
	}
	result, err := ws.Run(ctx, workspaced.Shell("echo hello; exit 3"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s%v\n", result.Stdout, result.Exit)
	if err := ws.Delete(ctx, workspaced.DeleteOptions{}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// hello
	// exit code 3
}

func ExampleWorkspace_Run() {
	ws, done := exampleWorkspace()
	defer done()
	command := workspaced.Argv("tr", "a-z", "A-Z")
	command.Stdin = strings.NewReader("some text\n")
	result, err := ws.Run(context.Background(), command)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", result.Stdout)
	// Output: SOME TEXT
}

func ExampleWorkspace_Exec() {
	ws, done := exampleWorkspace()
	defer done()
	ctx := context.Background()
	command := workspaced.Shell("read name; echo hello $name")
	command.StdinPipe = true
	process, err := ws.Exec(ctx, command)
	if err != nil {
		log.Fatal(err)
	}
	defer process.Close()
	fmt.Fprintln(process.Stdin, "ada")
	if _, err := io.Copy(os.Stdout, process.Stdout); err != nil {
		log.Fatal(err)
	}
	fmt.Println(process.Wait(ctx))
	// Output:
	// hello ada
	// <nil>
}

func ExampleProcess_Events() {
	ws, done := exampleWorkspace()
	defer done()
	ctx := context.Background()
	process, err := ws.Exec(ctx, workspaced.Shell("echo one; sleep 0.1; echo two >&2; sleep 0.1; echo three"))
	if err != nil {
		log.Fatal(err)
	}
	defer process.Close()
	for event, err := range process.Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s at %d: %s", event.Stream, event.Offset, event.Data)
	}
	// Output:
	// stdout at 0: one
	// stderr at 4: two
	// stdout at 8: three
}

func ExampleExitError() {
	ws, done := exampleWorkspace()
	defer done()
	ctx := context.Background()
	process, err := ws.Exec(ctx, workspaced.Shell("echo no such thing >&2; exit 7"))
	if err != nil {
		log.Fatal(err)
	}
	defer process.Close()
	_, err = process.Output(ctx)
	var failed *workspaced.ExitError
	if errors.As(err, &failed) {
		fmt.Printf("%d %s %s", failed.Code, failed.Reason, failed.Stderr)
	}
	// Output: 7 EXITED no such thing
}

func ExampleWorkspace_Attach() {
	ws, done := exampleWorkspace()
	defer done()
	ctx := context.Background()
	build := workspaced.Shell("echo building; echo built")
	build.ID = "build"
	started, err := ws.Start(ctx, build)
	if err != nil {
		log.Fatal(err)
	}
	if err := started.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	// Another program, which has read the first line before:
	process, err := ws.Attach(ctx, "build", workspaced.AttachOptions{Offset: int64(len("building\n"))})
	if err != nil {
		log.Fatal(err)
	}
	defer process.Close()
	output, err := process.CombinedOutput(ctx)
	fmt.Printf("%s%v\n", output, err)
	// Output:
	// built
	// <nil>
}

func ExampleError() {
	ws, done := exampleWorkspace()
	defer done()
	_, err := ws.Run(context.Background(), workspaced.Argv("/no/such/program"))
	fmt.Println(errors.Is(err, workspaced.ErrProcessStartFailed), errors.Is(err, workspaced.ErrFailedPrecondition))
	var e *workspaced.Error
	if errors.As(err, &e) {
		fmt.Println(e.Reason, e.Metadata["errno"])
	}
	// Output:
	// true true
	// PROCESS_START_FAILED ENOENT
}

func ExampleWorkspace_DialContext() {
	ws, done := exampleWorkspace()
	defer done()
	server, err := ws.Exec(context.Background(), workspaced.Command{
		Line: `python3 -u -c '
import http.server
class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from inside")
server = http.server.HTTPServer(("127.0.0.1", 0), Hello)
print(server.server_port)
server.serve_forever()'`,
		DisconnectPolicy: workspaced.DisconnectKill,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	var port int
	if _, err := fmt.Fscanln(server.Stdout, &port); err != nil {
		log.Fatal(err)
	}
	transport := &http.Transport{DialContext: ws.DialContext}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	response, err := client.Get(fmt.Sprintf("http://localhost:%d/", port))
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	fmt.Println(string(body), err)
	// Output: hello from inside <nil>
}
