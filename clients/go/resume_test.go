package workspaced

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestOutputOverCutConnections(t *testing.T) {
	ws := newWorkspace(t)
	relay := newRelay(t)
	far := relay.through(ws)
	p, err := far.Exec(testContext(t), Shell("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; exit 5"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var read, want bytes.Buffer
	for i := range 20000 {
		fmt.Fprintln(&want, "line", i)
	}
	cuts := 0
	for event, err := range p.Events(testContext(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if int(event.Offset) != read.Len() {
			t.Fatalf("offset %d after %d bytes", event.Offset, read.Len())
		}
		read.Write(event.Data)
		if read.Len() > cuts*want.Len()/4 {
			cuts++
			relay.cut()
		}
	}
	var failed *ExitError
	if err := p.Wait(testContext(t)); !errors.As(err, &failed) || failed.Code != 5 {
		t.Errorf("%v", err)
	}
	if !bytes.Equal(read.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes instead of %d", read.Len(), want.Len())
	}
}

func TestInputOverCutConnections(t *testing.T) {
	ws := newWorkspace(t)
	relay := newRelay(t)
	far := relay.through(ws)
	data := pattern(8 * mib)
	p, err := far.Exec(testContext(t), Command{Args: []string{"cat"}, Stdin: bytes.NewReader(data)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	relay.cutAfter(mib)
	var read bytes.Buffer
	cuts := 0
	for event, err := range p.Events(testContext(t)) {
		if err != nil {
			t.Fatal(err)
		}
		read.Write(event.Data)
		if read.Len() > (cuts+1)*2*mib {
			cuts++
			relay.cut()
		}
	}
	if !bytes.Equal(read.Bytes(), data) {
		t.Errorf("%d bytes of %d came back, or others", read.Len(), len(data))
	}
}

func TestRunOverACutConnectionRunsOnce(t *testing.T) {
	ws := newWorkspace(t)
	relay := newRelay(t)
	far := relay.through(ws)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			info, err := ws.Process("once").Info(testContext(t))
			if err != nil && !errors.Is(err, ErrProcessNotFound) || info.NextOffset > 0 {
				relay.cut()
				return
			}
		}
	}()
	command := Command{Line: "echo run >> runs; echo begun; sleep 1; cat runs", ID: "once", DisconnectPolicy: DisconnectKeep}
	result, err := far.Run(testContext(t), command)
	<-done
	if err != nil || string(result.Stdout) != "begun\nrun\n" {
		t.Fatalf("%+v, %v", result, err)
	}
}

func TestFrozenServerIsNoticed(t *testing.T) {
	ws := newWorkspace(t)
	relay := newRelay(t)
	client := dialTest(t, relay.address(), WithResumeTimeout(200*time.Millisecond), WithRetryTimeout(0))
	far := client.Workspace(ws.ID)
	p, err := far.Exec(testContext(t), Shell("echo begun; sleep 300"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Next(testContext(t)); err != nil {
		t.Fatal(err)
	}
	relay.frozen.Lock()
	defer relay.frozen.Unlock()
	began := time.Now()
	if _, err := p.Next(testContext(t)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("noticed after %v", took)
	}
	if err := ws.Process(p.ID).Kill(testContext(t)); err != nil {
		t.Error(err)
	}
}

func TestQuietConnectionLives(t *testing.T) {
	ws := newWorkspace(t)
	client := dialTest(t, testServer(t), WithKeepalive(50*time.Millisecond, 2*time.Second), WithResumeTimeout(0))
	p, err := client.Workspace(ws.ID).Exec(testContext(t), Shell("sleep 2; echo done"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if output, err := p.Output(testContext(t)); string(output) != "done\n" || err != nil {
		t.Errorf("%q, %v", output, err)
	}
}

func TestServerThatWasNeverThere(t *testing.T) {
	client := dialTest(t, "127.0.0.1:1")
	began := time.Now()
	if _, err := client.ServerInfo(testContext(t), false); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestClosedClient(t *testing.T) {
	ws := newWorkspace(t)
	client, err := Dial(testServer(t))
	if err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	p, err := client.Workspace(ws.ID).Exec(testContext(t), Command{Line: "cat", StdinPipe: true, DisconnectPolicy: DisconnectKill})
	if err != nil {
		t.Fatal(err)
	}
	reading := make(chan error)
	go func() {
		_, err := io.ReadAll(p.Stdout)
		reading <- err
	}()
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := <-reading; !errors.Is(err, ErrClosed) {
		t.Errorf("a reader: %v", err)
	}
	if _, err := client.ServerInfo(testContext(t), false); !errors.Is(err, ErrClosed) {
		t.Errorf("a call: %v", err)
	}
	goleak.VerifyNone(t, before)
}

func TestWatchAndList(t *testing.T) {
	ws := newWorkspace(t)
	relay := newRelay(t)
	far := relay.through(ws)
	var states []WorkspaceState
	for info, err := range far.client.Watch(testContext(t), Filter{IDs: []string{ws.ID}}) {
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, info.State)
		if info.State == StateClosed {
			break
		}
		relay.cut()
		if _, err := ws.Close(testContext(t), CloseOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if states[0] != StateReady || states[len(states)-1] != StateClosed {
		t.Errorf("%v", states)
	}
	found, err := ws.client.List(testContext(t), Filter{IDs: []string{ws.ID}, States: []WorkspaceState{StateClosed}})
	if err != nil || len(found) != 1 || found[0].ID != ws.ID {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := ws.Run(testContext(t), Shell("true")); !errors.Is(err, ErrWorkspaceNotReady) {
		t.Errorf("%v", err)
	}
}

func TestManyProcessesOnOneChannel(t *testing.T) {
	ws := newWorkspace(t)
	const count = 50
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			p, err := ws.Exec(testContext(t), Shell(fmt.Sprintf("echo %d; head -c 300000 /dev/zero", i)))
			if err != nil {
				t.Error(err)
				return
			}
			defer p.Close()
			output, err := p.Output(testContext(t))
			if want := fmt.Sprintln(i); err != nil || len(output) != 300000+len(want) || string(output[:len(want)]) != want {
				t.Errorf("%d: %d bytes, %v", i, len(output), err)
			}
		})
	}
	all.Wait()
}
