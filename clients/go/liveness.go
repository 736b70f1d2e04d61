package workspaced

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
)

const healthMethod = grpc_health_v1.Health_Check_FullMethodName

type keepaliveTimes struct{ silence, timeout time.Duration }

// liveness notices a server that is frozen: its machine still acknowledges packets, so nothing but its silence tells. While
// calls are open and nothing has arrived for a while, it makes a health check; any byte in answer is a sign of life, and without
// one the connection is closed, which ends its calls as unavailable.
//
// The keepalive of grpc does the same but no sooner than after 10 s of silence, and the API promises to notice within 10 s.
type liveness struct {
	times keepaliveTimes
	// epoch is what the times below count from.
	epoch time.Time
	open  atomic.Int64
	// since is when the first of the open calls began.
	since atomic.Int64

	mu      sync.Mutex
	channel grpc.ClientConnInterface
	conns   map[*watchedConn]struct{}
	timer   *time.Timer
	closed  bool
	probes  sync.WaitGroup
}

func newLiveness(times keepaliveTimes) *liveness {
	return &liveness{times: times, epoch: time.Now(), conns: map[*watchedConn]struct{}{}}
}

func (l *liveness) now() int64 { return int64(time.Since(l.epoch)) }

// begin counts a call; its end is the returned function, to be called once.
func (l *liveness) begin() (end func()) {
	if l.open.Add(1) == 1 {
		l.since.Store(l.now())
		l.arm(l.times.silence)
	}
	return func() { l.open.Add(-1) }
}

func (l *liveness) arm(after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && l.timer == nil && l.times.silence > 0 {
		l.timer = time.AfterFunc(after, l.look)
	}
}

// look runs while calls are open, whenever a silence may have become too long.
func (l *liveness) look() {
	l.mu.Lock()
	l.timer = nil
	if l.closed {
		l.mu.Unlock()
		return
	}
	var silent []*watchedConn
	oldest := l.now()
	for conn := range l.conns {
		heard := max(conn.heard.Load(), l.since.Load())
		if l.now()-heard >= int64(l.times.silence) {
			silent = append(silent, conn)
		}
		oldest = min(oldest, heard)
	}
	channel := l.channel
	l.probes.Add(1)
	l.mu.Unlock()
	defer l.probes.Done()
	if l.open.Load() == 0 {
		return
	}
	wait := l.times.silence - time.Duration(l.now()-oldest)
	if len(silent) > 0 && channel != nil {
		l.probe(channel, silent)
		wait = l.times.silence / 2
	}
	l.arm(max(wait, l.times.silence/20))
}

func (l *liveness) probe(channel grpc.ClientConnInterface, silent []*watchedConn) {
	asked := l.now()
	ctx, cancel := context.WithTimeout(context.Background(), l.times.timeout)
	defer cancel()
	// What it answers does not matter, only whether anything arrives.
	_, _ = grpc_health_v1.NewHealthClient(channel).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if l.now()-asked < int64(l.times.timeout) {
		return
	}
	for _, conn := range silent {
		if conn.heard.Load() < asked {
			_ = conn.Close() // its calls fail as unavailable, and grpc connects anew
		}
	}
}

// close ends the watching. The channel must be closed before, so that a probe ends.
func (l *liveness) close() {
	l.mu.Lock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	l.probes.Wait()
}

// watchedConn remembers when it last received anything.
type watchedConn struct {
	net.Conn
	liveness *liveness
	heard    atomic.Int64
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(c.liveness.now())
	}
	return n, err
}

func (c *watchedConn) Close() error {
	c.liveness.mu.Lock()
	delete(c.liveness.conns, c)
	c.liveness.mu.Unlock()
	return c.Conn.Close()
}

// watchedCredentials put a watchedConn below the transport's security.
type watchedCredentials struct {
	credentials.TransportCredentials
	liveness *liveness
}

func (w *watchedCredentials) ClientHandshake(
	ctx context.Context, authority string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	conn := &watchedConn{Conn: raw, liveness: w.liveness}
	conn.heard.Store(w.liveness.now())
	w.liveness.mu.Lock()
	w.liveness.conns[conn] = struct{}{}
	w.liveness.mu.Unlock()
	secure, info, err := w.TransportCredentials.ClientHandshake(ctx, authority, conn)
	if err != nil {
		_ = conn.Close()
	}
	return secure, info, err
}

func (w *watchedCredentials) Clone() credentials.TransportCredentials {
	return &watchedCredentials{TransportCredentials: w.TransportCredentials.Clone(), liveness: w.liveness}
}
