package workspaced

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/codes"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

const (
	// Output that is read ahead of the program; then the stream waits, and in the end the process.
	bufferBytes = 2 * mib
	// How much of standard error is remembered for an ExitError.
	stderrTailBytes = 4 << 10
)

// entry is an event, or a gap.
type entry struct {
	Event
	gap *OutputLostError
}

// attachment is one unbroken view of a process's journal and standard input, over as many calls as it takes. A goroutine of its
// own reads until the process has ended, attaching again when a connection breaks.
type attachment struct {
	client      *Client
	workspaceID string
	processID   string
	start       *pb.ProcessSpec
	readOnly    bool

	mu     sync.Mutex
	closed bool
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended; nil when there is none

	// Output that was read and not yet taken. changed fires for whoever waits for anything but input to send.
	entries  []entry
	buffered int
	nextRead int64 // offset of the next byte that is to be read
	offset   int64 // offset of the next byte that is to be taken
	changed  signal

	// The process, as this attachment saw it.
	started    *ProcessInfo
	existing   bool
	exit       *Exit
	err        error
	stderrTail []byte

	// Standard input and the terminal. wake fires when there is something to send.
	stdin       stdinBuffer
	stdinClosed bool
	stdinBroken error
	size        Size
	wake        signal
}

// open attaches if nothing does, and waits until it stands. The attachment lasts as long as the first context, the waiting as
// long as the second.
func (a *attachment) open(lasting, ctx context.Context) error {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return errHandleClosed()
	}
	if a.done == nil && a.exit == nil && a.err == nil {
		if lasting.Err() != nil {
			a.mu.Unlock()
			return interrupted(lasting)
		}
		running, cancel := a.client.lasting(lasting)
		a.cancel, a.done = cancel, make(chan struct{})
		go a.run(running, cancel, a.done)
	}
	defer a.mu.Unlock()
	for a.started == nil && a.err == nil {
		if a.done == nil && lasting.Err() != nil {
			return interrupted(lasting)
		}
		if a.done == nil {
			return errHandleClosed()
		}
		if err := a.await(ctx); err != nil {
			return err
		}
	}
	if a.started == nil {
		return a.err
	}
	return nil
}

// await waits for a change, with the mutex held before and after.
func (a *attachment) await(ctx context.Context) error {
	changed := a.changed.wait()
	a.mu.Unlock()
	defer a.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return interrupted(ctx)
	}
}

// detach ends the goroutine and the call. What was read and not taken is dropped, and can be read again.
func (a *attachment) detach() {
	a.mu.Lock()
	cancel, done := a.cancel, a.done
	a.mu.Unlock()
	if done != nil {
		cancel()
		<-done
	}
}

// close detaches for good. Idempotent.
func (a *attachment) close() {
	a.mu.Lock()
	a.closed = true
	a.changed.fire()
	a.mu.Unlock()
	a.detach()
}

// release detaches when a loop over events is left, unless what the process is to get would be lost with it.
func (a *attachment) release(keep bool) {
	a.mu.Lock()
	keep = keep || a.stdin.end > a.stdin.acked || a.stdinClosed
	a.mu.Unlock()
	if !keep {
		a.detach()
	}
}

// next is the next entry; io.EOF when the process has ended. An end of the context loses nothing.
func (a *attachment) next(ctx context.Context) (entry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.entries) == 0 || a.closed {
		switch {
		case a.closed:
			return entry{}, errHandleClosed()
		case a.err != nil:
			return entry{}, a.err
		case a.exit != nil:
			return entry{}, io.EOF
		case a.done == nil:
			return entry{}, errDetached
		}
		if err := a.await(ctx); err != nil {
			return entry{}, err
		}
	}
	first := a.entries[0]
	a.entries[0] = entry{}
	a.entries = a.entries[1:]
	if first.gap != nil {
		a.offset = first.gap.End
		return first, nil
	}
	full := a.buffered >= bufferBytes
	a.buffered -= len(first.Data)
	a.offset = first.Offset + int64(len(first.Data))
	if full {
		a.changed.fire()
	}
	return first, nil
}

// settle waits for the exit; nil when it cannot come to this attachment, or output that nobody takes is in its way. The error is
// that of the attachment.
func (a *attachment) settle(ctx context.Context) (*Exit, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.exit == nil && a.err == nil && a.done != nil && a.buffered < bufferBytes {
		if err := a.await(ctx); err != nil {
			return nil, err
		}
	}
	if a.exit == nil {
		return nil, a.err
	}
	return a.exit, nil
}

func errHandleClosed() *Error {
	return &Error{Code: codes.Canceled, Message: "the process handle is closed", cause: ErrClosed}
}

// errDetached: the attachment ended while somebody waited, and another may be made.
var errDetached = errors.New("detached")

// run is the goroutine.
func (a *attachment) run(ctx context.Context, cancel context.CancelFunc, done chan struct{}) {
	defer cancel()
	var lost outage
	var err error
	for {
		if err = a.attachOnce(ctx, &lost); err == nil || !lost.pause(ctx, a.client, err) {
			break
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
	case a.client.ctx.Err() != nil:
		a.err = errClosed()
	case ctx.Err() == nil:
		a.err = err
	}
	if a.exit == nil {
		a.entries, a.buffered, a.nextRead = nil, 0, a.offset
	}
	a.done = nil
	close(done)
	a.changed.fire()
}

// attachOnce is one call, from its start to its end; nil when the process has ended.
func (a *attachment) attachOnce(ctx context.Context, lost *outage) error {
	for {
		err := a.converse(ctx, lost)
		a.mu.Lock()
		ended, again := a.exit != nil, a.started != nil && ctx.Err() == nil && errors.Is(err, ErrStdinClosed)
		if again && !ended {
			// Nobody reads standard input any more, but the output goes on: attach without it.
			a.stdinBroken = err
			a.stdin.clear()
			a.changed.fire()
		}
		a.mu.Unlock()
		if ended {
			return nil // the exit is the last event: how the call ended after it means nothing
		}
		if !again {
			return err
		}
	}
}

func (a *attachment) onStarted(started *pb.ProcessStarted, lost *outage) {
	a.client.answered.Store(true)
	lost.since, lost.unreachable = outage{}.since, outage{}.unreachable
	info := processInfo(started.GetProcess())
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.started == nil {
		a.existing = started.GetExisting()
		a.stdin.begin(info.StdinOffset)
	} else {
		a.stdin.acknowledge(info.StdinOffset)
	}
	a.started = &info
	a.changed.fire()
}

func (a *attachment) onAck(offset int64, lost *outage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stdin.acknowledge(offset) {
		lost.over()
		a.changed.fire()
	}
}

// onOutput keeps the output, and waits while there is too much of it.
func (a *attachment) onOutput(ctx context.Context, output *pb.ProcessOutput, lost *outage) error {
	data, offset := output.GetData(), int64(output.GetOffset())
	a.mu.Lock()
	defer a.mu.Unlock()
	if expected := a.nextRead; offset != expected {
		if offset > expected {
			return &Error{
				Code: codes.Internal, Reason: "STREAM_DISORDERED",
				Message: fmt.Sprintf("output at offset %d where %d was due", offset, expected),
			}
		}
		if offset+int64(len(data)) <= expected {
			return nil // delivered before
		}
		data, offset = data[expected-offset:], expected
	}
	lost.over()
	a.nextRead = offset + int64(len(data))
	stream := Stdout
	switch output.GetStream() {
	case pb.Stream_STREAM_STDERR:
		stream = Stderr
		a.stderrTail = tail(a.stderrTail, data, stderrTailBytes)
	case pb.Stream_STREAM_PTY:
		stream = PTY
	}
	a.entries = append(a.entries, entry{Event: Event{Stream: stream, Offset: offset, Data: data}})
	a.buffered += len(data)
	a.changed.fire()
	for a.buffered >= bufferBytes {
		if err := a.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (a *attachment) onGap(start, end int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	start = max(start, a.nextRead)
	if end > start {
		a.nextRead = end
		a.entries = append(a.entries, entry{gap: &OutputLostError{Start: start, End: end}})
		a.changed.fire()
	}
}

func (a *attachment) onExit(exit Exit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.exit == nil {
		a.exit = &exit
		a.changed.fire()
		a.wake.fire()
	}
}

// tail is the last bytes of two pieces, at most limit.
func tail(kept, data []byte, limit int) []byte {
	if len(data) >= limit {
		return append(kept[:0], data[len(data)-limit:]...)
	}
	kept = append(kept, data...)
	if over := len(kept) - limit; over > 0 {
		kept = append(kept[:0], kept[over:]...)
	}
	return kept
}
