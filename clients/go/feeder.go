package workspaced

import (
	"context"
	"errors"
	"io"
)

// feeder copies Command.Stdin to a process. A nil feeder does nothing.
type feeder struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// feed begins; it ends with the source, the process or the attachment.
func (p *Process) feed(ctx context.Context, source io.Reader) {
	ctx, cancel := p.client.lasting(ctx)
	f := &feeder{cancel: cancel, done: make(chan struct{})}
	p.feeder = f
	go func() {
		defer close(f.done)
		defer cancel()
		f.err = p.copyStdin(ctx, source)
	}()
}

func (p *Process) copyStdin(ctx context.Context, source io.Reader) error {
	buffer := make([]byte, chunkBytes)
	for {
		n, err := source.Read(buffer)
		if n > 0 {
			if _, err := p.WriteStdin(ctx, buffer[:n]); err != nil {
				return stillReads(err)
			}
		}
		if errors.Is(err, io.EOF) {
			return stillReads(p.CloseStdin(ctx))
		}
		if err != nil {
			_ = p.CloseStdin(ctx) // so that the process ends; the error of the source is what counts
			return err
		}
	}
}

// stillReads is nil for a process that reads no more: a command need not read all of its input.
func stillReads(err error) error {
	if errors.Is(err, ErrStdinClosed) || errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// failure is the error of the source, if it has failed. A source that blocks after the end of the process is not waited for: its
// goroutine ends with its next read.
func (f *feeder) failure() error {
	if f == nil {
		return nil
	}
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

func (f *feeder) stop() {
	if f != nil {
		f.cancel()
	}
}
