package workspaced

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// testServer is the address of the server that tests use.
func testServer(t testing.TB) string {
	t.Helper()
	address := os.Getenv("WORKSPACED_TEST_SERVER")
	if address == "" {
		t.Fatal("set WORKSPACED_TEST_SERVER to the address of a server with the Local backend: these tests need one")
	}
	return address
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func dialTest(t testing.TB, address string, options ...Option) *Client {
	t.Helper()
	client, err := Dial(address, append([]Option{WithWarnings(func(text string) { t.Log(text) })}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// newWorkspace makes a workspace of the Local backend, which is gone after the test.
func newWorkspace(t testing.TB) *Workspace {
	t.Helper()
	client := dialTest(t, testServer(t))
	ws, err := client.Initialize(testContext(t), InitializeOptions{Backend: BackendLocal})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ws.Delete(testContext(t), DeleteOptions{AllowMissing: true}); err != nil {
			t.Error(err)
		}
	})
	return ws
}

// relay is a proxy before the server, whose connections can be broken.
type relay struct {
	t        testing.TB
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	// budget, when it is not nil, is how many bytes may still go to the server before everything is cut, once.
	budget *int64

	// frozen is held for writing while nothing is passed on.
	frozen sync.RWMutex
}

func newRelay(t testing.TB) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{t: t, listener: listener, target: testServer(t), conns: map[net.Conn]struct{}{}}
	r.running.Go(r.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		r.cut()
		r.running.Wait()
	})
	return r
}

func (r *relay) address() string { return r.listener.Addr().String() }

func (r *relay) accept() {
	for {
		near, err := r.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		r.mu.Lock()
		r.conns[near], r.conns[far] = struct{}{}, struct{}{}
		r.mu.Unlock()
		r.running.Go(func() { r.pump(far, near, true) })
		r.running.Go(func() { r.pump(near, far, false) })
	}
}

func (r *relay) pump(to, from net.Conn, up bool) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		r.frozen.RLock()
		//lint:ignore SA2001 what counts is to have waited
		r.frozen.RUnlock()
		if n > 0 {
			if up && r.spend(int64(n)) {
				r.cut()
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *relay) spend(n int64) (spent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.budget == nil {
		return false
	}
	if *r.budget -= n; *r.budget > 0 {
		return false
	}
	r.budget = nil
	return true
}

// cutAfter cuts all connections when so many more bytes have gone to the server.
func (r *relay) cutAfter(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.budget = &bytes
}

// cut breaks all connections; new ones can be made.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.conns {
		_ = conn.Close()
	}
	clear(r.conns)
}

// through is the workspace by a client of its own that goes through the relay.
func (r *relay) through(ws *Workspace) *Workspace {
	client := dialTest(r.t, r.address())
	if _, err := client.Workspace(ws.ID).Info(testContext(r.t)); err != nil {
		r.t.Fatal(err)
	}
	return client.Workspace(ws.ID)
}

// pattern is data in which every MiB differs.
func pattern(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i ^ i>>8 ^ i>>16 ^ i>>20)
	}
	return data
}

// onlyReader hides everything but Read.
type onlyReader struct{ io.Reader }
