package workspaced

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"
)

// localPort is a listener that a workspace of the Local backend reaches too.
func localPort(t *testing.T, serve func(net.Conn)) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().(*net.TCPAddr).Port
}

func echo(conn net.Conn) { _, _ = io.Copy(conn, conn) }

func TestTunnelIsAConnection(t *testing.T) {
	ws := newWorkspace(t)
	tunnel, err := ws.Tunnel(testContext(t), localPort(t, echo))
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	data := pattern(3 * mib)
	go func() {
		if _, err := tunnel.Write(data); err != nil {
			t.Error(err)
		}
		if err := tunnel.CloseWrite(); err != nil {
			t.Error(err)
		}
	}()
	back, err := io.ReadAll(tunnel)
	if err != nil || !bytes.Equal(back, data) {
		t.Errorf("%d bytes, %v", len(back), err)
	}
	if _, err := tunnel.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write after CloseWrite: %v", err)
	}
}

func TestTunnelDeadlines(t *testing.T) {
	ws := newWorkspace(t)
	tunnel, err := ws.Tunnel(testContext(t), localPort(t, echo))
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	buffer := make([]byte, 8)
	for range 2 {
		if err := tunnel.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err = tunnel.Read(buffer)
		var failed net.Error
		if !errors.As(err, &failed) || !failed.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%v", err)
		}
	}
	if err := tunnel.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := tunnel.Write([]byte("still there")); err != nil {
		t.Fatal(err)
	}
	if n, err := tunnel.Read(buffer); n == 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := tunnel.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := tunnel.Write([]byte("late")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	reading := make(chan error)
	go func() {
		_, err := io.ReadAll(tunnel)
		reading <- err
	}()
	_ = tunnel.Close()
	if err := <-reading; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a reader of a closed tunnel: %v", err)
	}
}

func TestTunnelRefused(t *testing.T) {
	ws := newWorkspace(t)
	if _, err := ws.Tunnel(testContext(t), 1); !errors.Is(err, ErrPortRefused) {
		t.Errorf("%v", err)
	}
	if _, err := ws.DialContext(testContext(t), "udp", "localhost:1"); err == nil {
		t.Error("a tunnel for udp")
	}
	if _, err := ws.Tunnel(testContext(t), 70000); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("%v", err)
	}
	ended, cancel := context.WithCancel(testContext(t))
	cancel()
	if _, err := ws.Tunnel(ended, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestHTTPThroughATunnel(t *testing.T) {
	ws := newWorkspace(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	defer func() {
		_ = server.Close()
		<-done
	}()
	port := listener.Addr().(*net.TCPAddr).Port
	transport := &http.Transport{DialContext: ws.DialContext}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for range 3 {
		response, err := client.Post("http://localhost:"+strconv.Itoa(port)+"/", "text/plain", bytes.NewReader(pattern(mib)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || !bytes.Equal(body, pattern(mib)) {
			t.Errorf("%d bytes, %v", len(body), err)
		}
	}
	found, err := ws.ListPorts(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	listed := false
	for _, info := range found {
		listed = listed || info.Port == port
	}
	if !listed {
		t.Errorf("%d is not among %v", port, found)
	}
}

func TestForward(t *testing.T) {
	ws := newWorkspace(t)
	forward, err := ws.Forward(testContext(t), localPort(t, echo), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer forward.Close()
	for range 3 {
		conn, err := net.Dial("tcp", forward.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if back, err := io.ReadAll(conn); string(back) != "hello" || err != nil {
			t.Errorf("%q, %v", back, err)
		}
		_ = conn.Close()
	}
	refused, err := ws.Forward(testContext(t), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	conn, err := net.Dial("tcp", refused.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a refused port reads as %v", err)
	}
}
