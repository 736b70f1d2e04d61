// Command conformance is the conformance driver of the Go client. It maps the operations of tests/clients/OPERATIONS.md to calls
// of the library, and holds no expectation.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/workspaced/workspaced/clients/go"
)

type request struct {
	ID   int64  `json:"id"`
	Op   string `json:"op"`
	Args args   `json:"args"`
}

type answer struct {
	ID    int64        `json:"id"`
	OK    any          `json:"ok,omitempty"`
	Error *errorResult `json:"error,omitempty"`
}

// driver runs requests, and prints what comes of them.
type driver struct {
	session *session
	out     *json.Encoder
	writing sync.Mutex

	mu      sync.Mutex
	cancels map[int64]context.CancelFunc
	running sync.WaitGroup
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve answers requests until the end of input, then cancels what runs and closes every client.
func serve(in io.Reader, out io.Writer) error {
	d := &driver{session: newSession(), out: json.NewEncoder(out), cancels: map[int64]context.CancelFunc{}}
	d.out.SetEscapeHTML(false)
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			if err := d.take(line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	d.mu.Lock()
	for _, cancel := range d.cancels {
		cancel()
	}
	d.mu.Unlock()
	d.running.Wait()
	for _, client := range allOf[*workspaced.Client](d.session) {
		_ = client.Close()
	}
	return nil
}

// take begins what a line asks for.
func (d *driver) take(line []byte) error {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("not a request: %w", err)
	}
	if r.Op == "cancel" {
		d.mu.Lock()
		if cancel, runs := d.cancels[int64(r.Args.integer("id", 0))]; runs {
			cancel()
		}
		d.mu.Unlock()
		d.say(answer{ID: r.ID, OK: object{}})
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.mu.Lock()
	d.cancels[r.ID] = cancel
	d.mu.Unlock()
	d.running.Go(func() {
		result, err := d.run(ctx, r)
		d.mu.Lock()
		delete(d.cancels, r.ID)
		d.mu.Unlock()
		cancel()
		if err != nil {
			d.say(answer{ID: r.ID, Error: errorOf(err)})
		} else {
			d.say(answer{ID: r.ID, OK: result})
		}
	})
	return nil
}

func (d *driver) run(ctx context.Context, r request) (result any, err error) {
	defer func() {
		if found := recover(); found != nil {
			result, err = nil, driverBug(fmt.Sprint(found))
		}
	}()
	op, known := operations[r.Op]
	if !known {
		return nil, driverBug("no operation " + r.Op)
	}
	if r.Args.has("timeout") {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Args.seconds("timeout"))
		defer cancel()
	}
	return op(ctx, d.session, r.Args)
}

func (d *driver) say(a answer) {
	d.writing.Lock()
	defer d.writing.Unlock()
	if err := d.out.Encode(a); err != nil {
		fmt.Fprintln(os.Stderr, "answer", a.ID, err)
	}
}
