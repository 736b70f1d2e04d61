package workspaced

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
)

// What one of Stdout and Stderr keeps for a reader who has not begun, or lags behind the other.
const readerBytes = mib

// demux gives the output of a process to two readers. Whoever has nothing to read takes the next event, and passes it on when it
// is the other's, so no goroutine is needed.
type demux struct {
	process *Process

	mu      sync.Mutex
	changed signal
	taking  bool
	closed  bool
	end     error
	readers [2]lane
}

// lane is what waits for one reader.
type lane struct {
	pieces []piece
	size   int
	begun  bool
	// spilled: from this offset on nothing is kept here; the reader fetches it from the workspace.
	spilled bool
	from    int64
	again   *Process
}

// piece is data, or an error in its place.
type piece struct {
	data []byte
	err  error
}

func newDemux(process *Process) *demux { return &demux{process: process} }

func laneOf(stream Stream) int {
	if stream == Stderr {
		return 1
	}
	return 0
}

// next is the next piece for a reader.
func (d *demux) next(number int) (piece, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	mine, other := &d.readers[number], &d.readers[1-number]
	mine.begun = true
	for {
		switch {
		case d.closed:
			return piece{}, errHandleClosed()
		case len(mine.pieces) > 0:
			first := mine.pieces[0]
			mine.pieces = mine.pieces[1:]
			mine.size -= len(first.data)
			d.changed.fire()
			return first, first.err
		case mine.spilled:
			return d.fetch(mine, number)
		case d.end != nil:
			return piece{}, d.end
		case !d.taking && (other.size < readerBytes || !other.begun):
			d.take()
		default:
			changed := d.changed.wait()
			d.mu.Unlock()
			<-changed
			d.mu.Lock()
		}
	}
}

// take passes the next event on; the mutex is held before and after.
func (d *demux) take() {
	d.taking = true
	d.mu.Unlock()
	event, err := d.process.Next(d.process.lifetime)
	d.mu.Lock()
	d.taking = false
	defer d.changed.fire()
	var lost *OutputLostError
	switch {
	case errors.As(err, &lost):
		// It may concern either.
		d.readers[0].add(piece{err: err}, lost.Start)
		d.readers[1].add(piece{err: err}, lost.Start)
	case err != nil:
		d.end = err
	default:
		d.readers[laneOf(event.Stream)].add(piece{data: event.Data}, event.Offset)
	}
}

func (l *lane) add(added piece, offset int64) {
	if !l.begun && l.size >= readerBytes && !l.spilled {
		l.spilled, l.from = true, offset
	}
	if !l.spilled {
		l.pieces = append(l.pieces, added)
		l.size += len(added.data)
	}
}

// fetch reads what was not kept from the workspace; the mutex is held before and after.
func (d *demux) fetch(mine *lane, number int) (piece, error) {
	if mine.again == nil {
		workspace := d.process.client.Workspace(d.process.WorkspaceID)
		mine.again = workspace.newProcess(d.process.lifetime, d.process.ID)
		mine.again.attachment.readOnly = true
		mine.again.attachment.offset, mine.again.attachment.nextRead = mine.from, mine.from
	}
	again := mine.again
	d.mu.Unlock()
	defer d.mu.Lock()
	for {
		event, err := again.Next(d.process.lifetime)
		if err != nil {
			return piece{}, err
		}
		if laneOf(event.Stream) == number {
			return piece{data: event.Data}, nil
		}
	}
}

func (d *demux) close() {
	d.mu.Lock()
	d.closed = true
	d.changed.fire()
	again := []*Process{d.readers[0].again, d.readers[1].again}
	d.mu.Unlock()
	for _, process := range again {
		if process != nil {
			process.attachment.close()
		}
	}
}

// outputReader is Stdout or Stderr. One goroutine reads it at a time.
type outputReader struct {
	demux  *demux
	number int
	piece  []byte
	rest   []byte // of the piece
}

func (r *outputReader) next() error {
	giveBack(r.piece)
	r.piece, r.rest = nil, nil
	next, err := r.demux.next(r.number)
	r.piece, r.rest = next.data, next.data
	return err
}

func (r *outputReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if len(p) == 0 {
			return 0, nil
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// WriteTo makes io.Copy pass the bytes on without another copy.
func (r *outputReader) WriteTo(w io.Writer) (int64, error) {
	var written int64
	for {
		if len(r.rest) > 0 {
			n, err := w.Write(r.rest)
			written += int64(n)
			r.rest = r.rest[n:]
			if err != nil {
				return written, err
			}
		}
		if err := r.next(); errors.Is(err, io.EOF) {
			return written, nil
		} else if err != nil {
			return written, err
		}
	}
}

// Output reads standard output to its end and waits for the process. Standard error is dropped, but for its end in an [*ExitError].
func (p *Process) Output(ctx context.Context) ([]byte, error) {
	return p.collect(ctx, func(stream Stream) bool { return stream != Stderr })
}

// CombinedOutput reads standard output and standard error to their end, in the order in which they were written, and waits for
// the process.
func (p *Process) CombinedOutput(ctx context.Context) ([]byte, error) {
	return p.collect(ctx, func(Stream) bool { return true })
}

func (p *Process) collect(ctx context.Context, wanted func(Stream) bool) ([]byte, error) {
	var output bytes.Buffer
	for event, err := range p.Events(ctx) {
		if err != nil {
			return output.Bytes(), err
		}
		if wanted(event.Stream) {
			output.Write(event.Data)
		}
		giveBack(event.Data)
	}
	return output.Bytes(), p.Wait(ctx)
}
