package workspaced

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// Tunnel is a TCP connection to a port inside a workspace: a [net.Conn] with CloseWrite. It is not resumed: a broken connection is
// [ErrUnavailable], as with any socket.
//
// Close drops what is still on its way; CloseWrite, and reading to the end, does not.
type Tunnel struct {
	client *Client
	stream grpc.BidiStreamingClient[pb.TunnelRequest, pb.TunnelResponse]
	ctx    context.Context
	cancel context.CancelFunc
	local  net.Addr
	remote net.Addr
	tasks  sync.WaitGroup

	// received is what the receiver hands over; it is closed after the last.
	received chan []byte
	reading  sync.Mutex
	rest     []byte

	// outgoing is what the sender is handed; nil closes the direction.
	outgoing chan []byte
	writing  sync.Mutex
	ended    bool // no more can be written

	readDeadline, writeDeadline deadline

	mu     sync.Mutex
	failed error // why the stream ended; io.EOF for its regular end
	halved bool  // the other side has closed its direction
	closed bool
}

func openTunnel(ctx context.Context, c *Client, open *pb.TunnelOpen) (*Tunnel, error) {
	lasting, cancel := c.lasting(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	fail := func(err error, stream grpc.ClientStream) (*Tunnel, error) {
		cancel()
		if ctx.Err() != nil {
			return nil, interrupted(ctx)
		}
		if stream == nil {
			return nil, c.failure(ctx, err, nil)
		}
		return nil, c.streamFailure(ctx, err, stream.Trailer())
	}
	stream, err := c.ports.Tunnel(lasting)
	if err != nil {
		return fail(err, nil)
	}
	_ = stream.Send(&pb.TunnelRequest{Part: &pb.TunnelRequest_Open{Open: open}}) // Recv tells its error
	first, err := stream.Recv()
	if err == nil && first.GetOpened() == nil {
		err = &Error{Code: codes.Internal, Reason: "STREAM_DISORDERED", Message: "the tunnel did not begin with `opened`"}
	}
	if err != nil || !stop() {
		return fail(err, stream)
	}
	c.answered.Store(true)
	t := &Tunnel{
		client: c, stream: stream, ctx: lasting, cancel: cancel,
		local:    tunnelAddr("workspace:" + open.GetWorkspaceId()),
		remote:   tunnelAddr(net.JoinHostPort(hostOf(open), strconv.Itoa(int(open.GetPort())))),
		received: make(chan []byte), outgoing: make(chan []byte),
	}
	t.tasks.Go(t.receive)
	t.tasks.Go(t.send)
	return t, nil
}

func hostOf(open *pb.TunnelOpen) string {
	if open.GetHost() == "" {
		return "127.0.0.1"
	}
	return open.GetHost()
}

type tunnelAddr string

func (tunnelAddr) Network() string  { return "tcp" }
func (a tunnelAddr) String() string { return string(a) }

// receive is a goroutine that ends with the stream.
func (t *Tunnel) receive() {
	defer t.cancel()
	open := true
	for {
		response, err := t.stream.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				err = t.client.failure(t.ctx, err, t.stream.Trailer())
			}
			t.fail(err)
			if open {
				close(t.received)
			}
			return
		}
		switch {
		case response.GetHalfClosed() != nil && open:
			open = false
			t.mu.Lock()
			t.halved = true
			t.mu.Unlock()
			close(t.received)
		case len(response.GetData()) > 0 && open:
			select {
			case t.received <- response.GetData():
			case <-t.ctx.Done():
			}
		}
	}
}

// send is a goroutine that ends with the stream, or when the direction is closed.
func (t *Tunnel) send() {
	for {
		select {
		case chunk := <-t.outgoing:
			if chunk == nil {
				_ = t.stream.CloseSend() // always nil
				return
			}
			if t.stream.Send(&pb.TunnelRequest{Part: &pb.TunnelRequest_Data{Data: chunk}}) != nil {
				<-t.ctx.Done() // the receiver learns why, and ends the stream
				return
			}
		case <-t.ctx.Done():
			return
		}
	}
}

func (t *Tunnel) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil {
		t.failed = err
	}
}

// failure is why nothing more comes or goes.
func (t *Tunnel) failure(reading bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return net.ErrClosed
	case reading && t.halved:
		return io.EOF
	case t.failed != nil:
		return t.failed
	default:
		return io.EOF
	}
}

// Read reads what has come, and waits for it. [io.EOF] when the other side has closed its direction.
func (t *Tunnel) Read(p []byte) (int, error) {
	t.reading.Lock()
	defer t.reading.Unlock()
	if t.readDeadline.passed() {
		return 0, t.opError("read", errTimeout)
	}
	if len(t.rest) == 0 && len(p) > 0 {
		select {
		case data, ok := <-t.received:
			if !ok {
				return 0, t.opError("read", t.failure(true))
			}
			t.rest = data
		case <-t.readDeadline.wait():
			return 0, t.opError("read", errTimeout)
		}
	}
	n := copy(p, t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

// Write sends bytes, and waits while the other side does not read.
func (t *Tunnel) Write(p []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	if t.ended {
		return 0, t.opError("write", net.ErrClosed)
	}
	written := 0
	for written < len(p) {
		if t.writeDeadline.passed() {
			return written, t.opError("write", errTimeout)
		}
		chunk := append([]byte(nil), p[written:min(len(p), written+chunkBytes)]...)
		select {
		case t.outgoing <- chunk:
			written += len(chunk)
		case <-t.writeDeadline.wait():
			return written, t.opError("write", errTimeout)
		case <-t.ctx.Done():
			err := t.failure(false)
			if errors.Is(err, io.EOF) {
				err = &Error{Code: codes.Unavailable, Message: "the tunnel is closed"}
			}
			return written, t.opError("write", err)
		}
	}
	return written, nil
}

// CloseWrite closes this direction after what was written: the other side reads its end. Reading goes on. Idempotent.
func (t *Tunnel) CloseWrite() error {
	t.writing.Lock()
	defer t.writing.Unlock()
	if t.ended {
		return nil
	}
	t.ended = true
	select {
	case t.outgoing <- nil:
	case <-t.ctx.Done():
	}
	return nil
}

// Close closes both directions at once. Idempotent.
func (t *Tunnel) Close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.tasks.Wait()
	return nil
}

// LocalAddr names the workspace.
func (t *Tunnel) LocalAddr() net.Addr { return t.local }

// RemoteAddr is the address as seen from inside the workspace.
func (t *Tunnel) RemoteAddr() net.Addr { return t.remote }

// SetDeadline bounds reads and writes.
func (t *Tunnel) SetDeadline(when time.Time) error {
	t.readDeadline.set(when)
	t.writeDeadline.set(when)
	return nil
}

// SetReadDeadline bounds reads, also those that wait now. A zero time is no deadline.
func (t *Tunnel) SetReadDeadline(when time.Time) error {
	t.readDeadline.set(when)
	return nil
}

// SetWriteDeadline bounds writes, also those that wait now. What was written before it passed is still sent.
func (t *Tunnel) SetWriteDeadline(when time.Time) error {
	t.writeDeadline.set(when)
	return nil
}

// opError leaves the errors that callers compare, and gives others the form of package net.
func (t *Tunnel) opError(op string, err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return &net.OpError{Op: op, Net: "tcp", Source: t.local, Addr: t.remote, Err: err}
}
