package workspaced

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

func TestRun(t *testing.T) {
	ws := newWorkspace(t)
	big := pattern(3 * mib)
	tests := []struct {
		name    string
		command Command
		code    int
		signal  string
		reason  ExitReason
		stdout  string
		stderr  string
	}{
		{"both streams", Shell("echo out; echo err >&2; exit 3"), 3, "", ExitExited, "out\n", "err\n"},
		{"arguments", Argv("printf", "%s|", "a b", "$HOME"), 0, "", ExitExited, "a b|$HOME|", ""},
		{"environment and directory", Command{Line: "echo $A; basename $PWD", Env: map[string]string{"A": "1"}, Dir: "/tmp"}, 0, "", ExitExited, "1\ntmp\n", ""},
		{"a signal", Shell("kill -KILL $$"), -1, "KILL", ExitSignaled, "", ""},
		{"a time limit", Command{Line: "echo begun; sleep 60", Timeout: 300 * time.Millisecond}, -1, "TERM", ExitTimedOut, "begun\n", ""},
		{"input", Command{Args: []string{"cat"}, Stdin: strings.NewReader("some input")}, 0, "", ExitExited, "some input", ""},
		{"large input and output", Command{Args: []string{"cat"}, Stdin: bytes.NewReader(big)}, 0, "", ExitExited, string(big), ""},
		{"input that is not read", Command{Args: []string{"true"}, Stdin: bytes.NewReader(big)}, 0, "", ExitExited, "", ""},
		{"a terminal", Command{Line: "stty size", PTY: &Size{Cols: 100, Rows: 30}}, 0, "", ExitExited, "30 100\r\n", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			result, err := ws.Run(testContext(t), test.command)
			if err != nil {
				t.Fatal(err)
			}
			if result.Code != test.code || result.Signal != test.signal || result.Reason != test.reason {
				t.Errorf("ended with %+v", result.Exit)
			}
			if string(result.Stdout) != test.stdout || string(result.Stderr) != test.stderr {
				t.Errorf("wrote %.50q (%d) and %.50q", result.Stdout, len(result.Stdout), result.Stderr)
			}
			if failed := result.Check(); (failed == nil) != (test.code == 0) {
				t.Errorf("Check: %v", failed)
			}
		})
	}
}

func TestRunRefuses(t *testing.T) {
	ws := newWorkspace(t)
	tests := []struct {
		name    string
		command Command
		want    error
	}{
		{"no such program", Argv("/no/such/program"), ErrProcessStartFailed},
		{"two commands", Command{Line: "true", Args: []string{"true"}}, ErrInvalidArgument},
		{"a pipe", Command{Line: "true", StdinPipe: true}, ErrInvalidArgument},
		{"a negative limit", Command{Line: "true", MaxOutputBytes: -1}, ErrInvalidArgument},
		{"an unknown policy", Command{Line: "true", DisconnectPolicy: "perhaps"}, ErrInvalidArgument},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := ws.Run(testContext(t), test.command); !errors.Is(err, test.want) {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := ws.client.Workspace("no-such").Run(testContext(t), Shell("true")); !errors.Is(err, ErrWorkspaceNotFound) {
		t.Errorf("%v", err)
	}
}

func TestCancelledRunEndsTheTree(t *testing.T) {
	ws := newWorkspace(t)
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if running, err := ws.Processes(ctx, ProcessRunning); err == nil && len(running) == 1 {
				return
			}
		}
	}()
	if _, err := ws.Run(ctx, Command{Line: "sleep 300", ID: "sleeper"}); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	var failed *ExitError
	if err := ws.Process("sleeper").Wait(testContext(t)); !errors.As(err, &failed) || failed.Signal != "TERM" {
		t.Errorf("%v", err)
	}
}

// Memory of what was read is used again for what is to come: neither reader may see the other's, or its own of later.
func TestReadersGetWhatWasWritten(t *testing.T) {
	ws, ctx := newWorkspace(t), testContext(t)
	p, err := ws.Exec(ctx, Shell("head -c 32M /dev/urandom > r; head -c 32M /dev/urandom > s; cat r & cat s >&2; wait; rm r s"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var read [2][]byte
	var both sync.WaitGroup
	for i, reader := range []io.Reader{iotest.OneByteReader(io.LimitReader(p.Stdout, 1000)), p.Stderr} {
		both.Go(func() {
			head, err := io.ReadAll(reader)
			if i == 0 && err == nil {
				var rest bytes.Buffer
				_, err = io.Copy(&rest, p.Stdout)
				head = append(head, rest.Bytes()...)
			}
			if err != nil {
				t.Error(err)
			}
			read[i] = head
		})
	}
	both.Wait()
	again, err := ws.Attach(ctx, p.ID, AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	var kept [2][]byte
	for event, err := range again.Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		kept[laneOf(event.Stream)] = append(kept[laneOf(event.Stream)], event.Data...)
	}
	for i := range read {
		if len(read[i]) != 32*mib || !bytes.Equal(read[i], kept[i]) {
			t.Errorf("stream %d: %d bytes, not those of the journal", i, len(read[i]))
		}
	}
}

func TestStdoutAndStderrAreIndependent(t *testing.T) {
	ws := newWorkspace(t)
	const size = 5 * mib
	command := Shell(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' o; head -c %d /dev/zero | tr '\\0' e >&2", size, size))
	want := func(t *testing.T, name string, r io.Reader, letter string) {
		data, err := io.ReadAll(r)
		if err != nil || len(data) != size || bytes.Count(data, []byte(letter)) != size {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	tests := []struct {
		name string
		read func(t *testing.T, p *Process)
	}{
		{"one after the other", func(t *testing.T, p *Process) {
			want(t, "stderr", p.Stderr, "e") // all of stdout comes before
			want(t, "stdout", p.Stdout, "o")
		}},
		{"at once", func(t *testing.T, p *Process) {
			var both sync.WaitGroup
			both.Go(func() { want(t, "stderr", p.Stderr, "e") })
			both.Go(func() { want(t, "stdout", p.Stdout, "o") })
			both.Wait()
		}},
		{"one alone", func(t *testing.T, p *Process) { want(t, "stderr", p.Stderr, "e") }},
		{"by WriteTo", func(t *testing.T, p *Process) {
			if n, err := io.Copy(io.Discard, p.Stdout); n != size || err != nil {
				t.Error(n, err)
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, err := ws.Exec(testContext(t), command)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			test.read(t, p)
			if err := p.Wait(testContext(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWaitNeedsNoReader(t *testing.T) {
	ws := newWorkspace(t)
	p, err := ws.Exec(testContext(t), Shell("head -c 9000000 /dev/zero; echo no >&2; exit 7"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var failed *ExitError
	if err := p.Wait(testContext(t)); !errors.As(err, &failed) || failed.Code != 7 {
		t.Fatalf("%v", err)
	}
	output, err := p.CombinedOutput(testContext(t))
	if !errors.As(err, &failed) || string(failed.Stderr) != "no\n" || len(output) != 9000003 {
		t.Errorf("%d bytes, %v", len(output), err)
	}
}

func TestConversation(t *testing.T) {
	ws := newWorkspace(t)
	p, err := ws.Exec(testContext(t), Command{Args: []string{"cat"}, StdinPipe: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	buffer := make([]byte, 16)
	for range 3 {
		if _, err := io.WriteString(p.Stdin, "ping\n"); err != nil {
			t.Fatal(err)
		}
		if n, err := io.ReadFull(p.Stdout, buffer[:5]); string(buffer[:n]) != "ping\n" || err != nil {
			t.Fatalf("%q, %v", buffer[:n], err)
		}
	}
	if err := p.Stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Stdin.Write([]byte("more")); !errors.Is(err, ErrStdinClosed) {
		t.Errorf("%v", err)
	}
	if _, err := p.Stdout.Read(buffer); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	if err := p.Wait(testContext(t)); err != nil {
		t.Error(err)
	}
}

func TestInputOfAReader(t *testing.T) {
	ws := newWorkspace(t)
	data := pattern(5 * mib)
	p, err := ws.Exec(testContext(t), Command{Args: []string{"cat"}, Stdin: onlyReader{bytes.NewReader(data)}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if output, err := p.Output(testContext(t)); !bytes.Equal(output, data) || err != nil {
		t.Errorf("%d bytes, %v", len(output), err)
	}
	broken := errors.New("broken")
	p, err = ws.Exec(testContext(t), Command{Args: []string{"cat"}, Stdin: io.MultiReader(strings.NewReader("x"), failing{broken})})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if output, err := p.Output(testContext(t)); string(output) != "x" || !errors.Is(err, broken) {
		t.Errorf("%q, %v", output, err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestLeavingTheLoopDetaches(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	p, err := ws.Exec(ctx, Shell("i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done"))
	if err != nil {
		t.Fatal(err)
	}
	var read bytes.Buffer
	for loops := 0; ; loops++ {
		left := false
		for event, err := range p.Events(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			read.Write(event.Data)
			left = true
			break
		}
		if p.attachment.done != nil {
			t.Fatal("still attached after the loop was left")
		}
		if !left {
			break
		}
	}
	var want bytes.Buffer
	for i := range 2000 {
		fmt.Fprintln(&want, i)
	}
	if !bytes.Equal(read.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes instead of %d", read.Len(), want.Len())
	}
}

func TestClosedHandle(t *testing.T) {
	ws := newWorkspace(t)
	p, err := ws.Exec(testContext(t), Command{Line: "sleep 300", ID: "kept", StdinPipe: true})
	if err != nil {
		t.Fatal(err)
	}
	reading := make(chan error)
	go func() {
		_, err := p.Stdout.Read(make([]byte, 1))
		reading <- err
	}()
	p.Detach()
	if err := <-reading; !errors.Is(err, ErrClosed) {
		t.Errorf("a reader that waits: %v", err)
	}
	if _, err := p.Next(testContext(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("Next: %v", err)
	}
	if _, err := p.Stdin.Write([]byte("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("Write: %v", err)
	}
	again, err := ws.Attach(testContext(t), "kept", AttachOptions{})
	if err != nil {
		t.Fatalf("the process is gone: %v", err)
	}
	defer again.Close()
	if err := again.Kill(testContext(t)); err != nil {
		t.Fatal(err)
	}
	var failed *ExitError
	if err := again.Wait(testContext(t)); !errors.As(err, &failed) || failed.Signal != "KILL" {
		t.Errorf("%v", err)
	}
}

func TestCloseKills(t *testing.T) {
	ws := newWorkspace(t)
	p, err := ws.Exec(testContext(t), Command{Line: "sleep 300", ID: "doomed", DisconnectPolicy: DisconnectKill})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	var failed *ExitError
	if err := ws.Process("doomed").Wait(testContext(t)); !errors.As(err, &failed) || failed.Signal != "KILL" {
		t.Errorf("%v", err)
	}
}

func TestEndOfTheContextDetaches(t *testing.T) {
	ws := newWorkspace(t)
	ctx, cancel := context.WithCancel(testContext(t))
	p, err := ws.Exec(ctx, Command{Line: "echo begun; sleep 300"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Next(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := p.Next(testContext(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if info, err := p.Info(testContext(t)); err != nil || info.State != ProcessRunning {
		t.Errorf("%+v, %v", info, err)
	}
	if err := p.Kill(testContext(t)); err != nil {
		t.Error(err)
	}
}
