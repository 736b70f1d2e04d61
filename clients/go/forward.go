package workspaced

import (
	"context"
	"io"
	"net"
	"sync"
)

// Forward is a local TCP port that leads to a port inside a workspace, made by [Workspace.Forward].
type Forward struct {
	listener  net.Listener
	workspace *Workspace
	port      int
	ctx       context.Context
	cancel    context.CancelFunc
	tasks     sync.WaitGroup
}

// Forward carries the connections of a listener to a port inside the workspace, until the context ends or [Forward.Close], which
// closes the listener. A nil listener is a free port of 127.0.0.1.
func (w *Workspace) Forward(ctx context.Context, port int, listener net.Listener) (*Forward, error) {
	if listener == nil {
		var err error
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, err
		}
	}
	ctx, cancel := w.client.lasting(ctx)
	f := &Forward{listener: listener, workspace: w, port: port, ctx: ctx, cancel: cancel}
	f.tasks.Go(f.accept)
	f.tasks.Go(func() {
		<-ctx.Done()
		_ = listener.Close() // what ends accept
	})
	return f, nil
}

// Addr is where it listens.
func (f *Forward) Addr() net.Addr { return f.listener.Addr() }

// Close stops listening and closes every connection. Idempotent.
func (f *Forward) Close() error {
	f.cancel()
	f.tasks.Wait()
	return nil
}

func (f *Forward) accept() {
	defer f.cancel()
	for {
		local, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.tasks.Go(func() { f.carry(local) })
	}
}

// carry is one connection.
func (f *Forward) carry(local net.Conn) {
	defer local.Close()
	tunnel, err := f.workspace.Tunnel(f.ctx, f.port)
	if err != nil {
		reset(local)
		return
	}
	defer tunnel.Close()
	stop := context.AfterFunc(f.ctx, func() {
		_ = local.Close()
		tunnel.cancel()
	})
	defer stop()
	var outward sync.WaitGroup
	defer outward.Wait()
	outward.Go(func() {
		if _, err := io.Copy(tunnel, local); err != nil {
			tunnel.cancel()
		}
		_ = tunnel.CloseWrite()
	})
	if _, err := io.Copy(local, tunnel); err != nil {
		reset(local)
		return
	}
	if half, ok := local.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // an error means that the other side is gone
	} else {
		_ = local.Close()
	}
}

// reset is how TCP says that the other end failed.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
