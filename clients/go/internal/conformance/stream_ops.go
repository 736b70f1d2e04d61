package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"sync"

	"github.com/workspaced/workspaced/clients/go"
)

func init() {
	register(map[string]operation{
		"file_open":    fileOpen,
		"stream_read":  streamRead,
		"stream_close": streamClose,
		"watch_files":  watchFiles,
		"watch_next":   watchNext,
	})
	scopes["file"] = func(ctx context.Context, s *session, a args, item func() bool) error {
		file, err := s.workspace(a).Files().Open(ctx, a.str("path", ""))
		if err != nil {
			return err
		}
		defer file.Close()
		buffer := make([]byte, mib)
		for {
			if _, err := file.Read(buffer); err != nil || !item() {
				return err
			}
		}
	}
	scopes["watch_files"] = func(ctx context.Context, s *session, a args, item func() bool) error {
		for _, err := range s.workspace(a).Files().Watch(ctx, a.str("path", "")) {
			if err != nil || !item() {
				return err
			}
		}
		return nil
	}
}

// stream is what stream_close ends.
type stream interface{ close() error }

type fileStream struct{ file *workspaced.File }

func (f *fileStream) close() error {
	if err := f.file.Close(); !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}

func fileOpen(ctx context.Context, s *session, a args) (any, error) {
	open, cancel, keep := lasting(ctx)
	file, err := s.workspace(a).Files().Open(open, a.str("path", ""), a.readOptions()...)
	if err != nil {
		cancel()
		return nil, err
	}
	if !keep() {
		return nil, errors.Join(ctx.Err(), file.Close())
	}
	s.put(a, "stream", stream(&fileStream{file}))
	return object{}, nil
}

func streamRead(ctx context.Context, s *session, a args) (any, error) {
	opened := get[stream](s, a, "stream").(*fileStream)
	stop := context.AfterFunc(ctx, func() { _ = opened.close() })
	defer stop()
	read, end := newSink(), false
	buffer := make([]byte, mib)
	for !a.has("bytes") || read.size < int64(a.integer("bytes", 0)) {
		n, err := opened.file.Read(buffer)
		_, _ = read.Write(buffer[:n]) // never fails
		if err == io.EOF {
			end = true
			break
		}
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
	}
	result := read.result()
	result["end"] = end
	return result, nil
}

func streamClose(_ context.Context, s *session, a args) (any, error) {
	return object{}, get[stream](s, a, "stream").close()
}

// watchStream pulls changes. Only one goroutine may pull or stop at a time.
type watchStream struct {
	cancel context.CancelFunc
	mu     sync.Mutex
	next   func() (workspaced.FileChange, error, bool)
	stop   func()
}

func (w *watchStream) close() error {
	w.cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop()
	return nil
}

func watchFiles(_ context.Context, s *session, a args) (any, error) {
	type option = workspaced.WatchOption
	options := given(nil, a.flag("recursive"), func() option { return workspaced.Recursive() })
	ctx, cancel := context.WithCancel(context.Background())
	next, stop := iter.Pull2(s.workspace(a).Files().Watch(ctx, a.str("path", ""), options...))
	s.put(a, "stream", stream(&watchStream{cancel: cancel, next: next, stop: stop}))
	return object{}, nil
}

func watchNext(ctx context.Context, s *session, a args) (any, error) {
	watch := get[stream](s, a, "stream").(*watchStream)
	stop := context.AfterFunc(ctx, watch.cancel)
	defer stop()
	watch.mu.Lock()
	defer watch.mu.Unlock()
	change, err, more := watch.next()
	switch {
	case ctx.Err() != nil && (err != nil || !more):
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	case !more:
		return nil, driverBug("the watch has ended")
	case change.Path == "":
		return object{"kind": change.Kind}, nil
	default:
		return object{"kind": change.Kind, "path": change.Path, "to": change.To}, nil
	}
}
