package workspaced

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

const (
	prefaceBytes     = 24 // what an HTTP/2 connection of a client begins with
	frameHeaderBytes = 9
)

// pingFrame is an HTTP/2 frame of type PING, whose answer carries the same eight bytes. grpc ignores an answer that it did not ask for.
var pingFrame = append([]byte{0, 0, 8, 6, 0, 0, 0, 0, 0}, "liveness"...)

// watchedConn carries the HTTP/2 frames of grpc. It remembers when it last received anything, and can put a ping of its own
// between two frames.
type watchedConn struct {
	net.Conn
	liveness *liveness
	heard    atomic.Int64
	asked    int64 // when a ping was sent; guarded by liveness.mu

	writing sync.Mutex
	frame   frameTracker
	due     bool // a ping waits for the end of a frame
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(c.liveness.now())
	}
	return n, err
}

func (c *watchedConn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err := c.Conn.Write(p)
	c.frame.advance(p[:n])
	if err == nil && c.due {
		err = c.writePing()
	}
	return n, err
}

// ping sends a ping, at once or after the frame that is being written. An error of it shows when grpc reads or writes.
func (c *watchedConn) ping() {
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.writePing()
}

func (c *watchedConn) writePing() error {
	c.due = !c.frame.between()
	if c.due {
		return nil
	}
	_, err := c.Conn.Write(pingFrame)
	return err
}

func (c *watchedConn) Close() error {
	c.liveness.remove(c)
	return c.Conn.Close()
}

// frameTracker knows whether what was written so far ends with a whole frame.
type frameTracker struct {
	begun  bool
	left   int // bytes of the preface or of a frame's payload that are still to come
	header [frameHeaderBytes]byte
	filled int
}

func (f *frameTracker) between() bool { return f.begun && f.left == 0 && f.filled == 0 }

func (f *frameTracker) advance(written []byte) {
	if !f.begun {
		f.begun, f.left = true, prefaceBytes
	}
	for len(written) > 0 {
		if f.left > 0 {
			n := min(f.left, len(written))
			f.left -= n
			written = written[n:]
			continue
		}
		n := copy(f.header[f.filled:], written)
		f.filled += n
		written = written[n:]
		if f.filled == frameHeaderBytes {
			f.left = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
			f.filled = 0
		}
	}
}

// watchedCredentials put a watchedConn above the transport's security.
type watchedCredentials struct {
	credentials.TransportCredentials
	liveness *liveness
}

func (w *watchedCredentials) ClientHandshake(
	ctx context.Context, authority string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := w.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	conn := &watchedConn{Conn: secure, liveness: w.liveness}
	conn.heard.Store(w.liveness.now())
	w.liveness.add(conn)
	return conn, info, nil
}

func (w *watchedCredentials) Clone() credentials.TransportCredentials {
	return &watchedCredentials{TransportCredentials: w.TransportCredentials.Clone(), liveness: w.liveness}
}
