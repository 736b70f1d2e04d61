package workspaced

import (
	"sync"
	"sync/atomic"
	"time"
)

type keepaliveTimes struct{ silence, timeout time.Duration }

// liveness notices a server that is frozen: its machine still acknowledges packets, so nothing but its silence tells. While calls
// are open and nothing has arrived for a while, it sends a ping; any byte in answer is a sign of life, and without one the
// connection is closed, which ends its calls as unavailable.
//
// The keepalive of grpc does the same but no sooner than after 10 s of silence, and the API promises to notice within 10 s.
type liveness struct {
	times keepaliveTimes
	// epoch is what the times below count from, in nanoseconds.
	epoch time.Time
	open  atomic.Int64
	// since is when the first of the open calls began.
	since atomic.Int64

	mu     sync.Mutex
	conns  map[*watchedConn]struct{}
	timer  *time.Timer
	closed bool
	pings  sync.WaitGroup
}

func newLiveness(times keepaliveTimes) *liveness {
	return &liveness{times: times, epoch: time.Now(), conns: map[*watchedConn]struct{}{}}
}

func (l *liveness) now() int64 { return int64(time.Since(l.epoch)) }

// begin counts a call; its end is the returned function, to be called once.
func (l *liveness) begin() (end func()) {
	if l.open.Add(1) == 1 {
		l.since.Store(l.now())
		l.mu.Lock()
		l.arm(l.times.silence)
		l.mu.Unlock()
	}
	return func() { l.open.Add(-1) }
}

// arm has look called; the mutex is held.
func (l *liveness) arm(after time.Duration) {
	if !l.closed && l.timer == nil && l.times.silence > 0 {
		l.timer = time.AfterFunc(after, l.look)
	}
}

// look runs while calls are open, whenever a silence may have become too long.
func (l *liveness) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	if l.closed || l.open.Load() == 0 {
		return
	}
	now, next := l.now(), int64(l.times.silence)
	for conn := range l.conns {
		heard := max(conn.heard.Load(), l.since.Load())
		switch {
		case conn.asked <= heard && now-heard >= int64(l.times.silence):
			conn.asked = now
			next = min(next, int64(l.times.timeout))
			l.pings.Go(conn.ping)
		case conn.asked <= heard:
			next = min(next, heard+int64(l.times.silence)-now)
		case now-conn.asked >= int64(l.times.timeout):
			delete(l.conns, conn)
			// Its calls fail as unavailable, and grpc connects anew.
			l.pings.Go(func() { _ = conn.Conn.Close() })
		default:
			next = min(next, conn.asked+int64(l.times.timeout)-now)
		}
	}
	l.arm(max(time.Duration(next), time.Millisecond))
}

func (l *liveness) add(conn *watchedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[conn] = struct{}{}
}

func (l *liveness) remove(conn *watchedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
}

// close ends the watching, after the channel was closed.
func (l *liveness) close() {
	l.mu.Lock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	l.pings.Wait()
}
