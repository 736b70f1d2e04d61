package workspaced

import (
	"os"
	"sync"
	"time"
)

// errTimeout is what a connection fails with when its deadline has passed; it is a net.Error whose Timeout is true.
var errTimeout = os.ErrDeadlineExceeded

// deadline is one of a connection, which can be moved while somebody waits for it.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	number int // of the last set, which alone counts
	over   chan struct{}
	closed bool
}

// set moves it; the zero time is never.
func (d *deadline) set(when time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.number++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.over == nil || d.closed {
		d.over, d.closed = make(chan struct{}), false
	}
	if when.IsZero() {
		return
	}
	left := time.Until(when)
	if left <= 0 {
		d.closed = true
		close(d.over)
		return
	}
	number := d.number
	d.timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.number == number {
			d.closed = true
			close(d.over)
		}
	})
}

// wait is a channel that is closed when it passes.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over == nil {
		d.over = make(chan struct{})
	}
	return d.over
}

func (d *deadline) passed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}
