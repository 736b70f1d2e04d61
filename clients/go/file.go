package workspaced

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// File is an open file of a workspace: an [io.ReadSeekCloser], [io.ReaderAt], [io.WriterTo] and [fs.File].
//
// Reading goes on at the byte when a connection breaks. It fails with [ErrContentChanged] when the file changed while the
// connection was down, or between two places that it was read at.
//
// Read, WriteTo and Seek are for one goroutine at a time; ReadAt is for any number, and Close ends what the others wait for.
type File struct {
	files  *Files
	path   string
	ctx    context.Context
	cancel context.CancelFunc
	closed atomic.Bool
	// stated is what Stat tells; seen is what was found when reading began, shared with what ReadAt opens.
	stated *FileInfo
	seen   *atomic.Pointer[FileInfo]

	position int64 // of the first byte of pending, else of the next one to receive
	until    int64
	pending  []byte
	ended    bool
	stream   grpc.ServerStreamingClient[pb.ReadFileResponse]
	hangUp   context.CancelFunc
	lost     outage
}

var (
	_ fs.File           = (*File)(nil)
	_ io.ReadSeekCloser = (*File)(nil)
	_ io.ReaderAt       = (*File)(nil)
	_ io.WriterTo       = (*File)(nil)
)

// Open opens a file for reading, as a whole or from [Offset] up to [Limit] bytes further. The context is for as long as the
// file is open; Close ends the call on the server.
func (f *Files) Open(ctx context.Context, path string, options ...ReadOption) (*File, error) {
	part := fileRange{limit: -1}
	for _, option := range options {
		option.applyRead(&part)
	}
	if part.offset < 0 {
		return nil, invalidArgument("an offset is not negative")
	}
	file := f.handle(ctx, path, nil)
	file.position = part.offset
	if part.limit >= 0 && part.limit < math.MaxInt64-part.offset {
		file.until = part.offset + part.limit
	}
	// What is known of the file comes before its first bytes.
	if err := file.fill(); err != nil && err != io.EOF {
		file.Close()
		return nil, err
	}
	return file, nil
}

// handle is an open file, of which nothing has been asked yet.
func (f *Files) handle(ctx context.Context, path string, info *FileInfo) *File {
	ctx, cancel := context.WithCancel(ctx)
	return &File{
		files: f, path: path, ctx: ctx, cancel: cancel, stated: info, seen: new(atomic.Pointer[FileInfo]), until: math.MaxInt64,
	}
}

// Stat tells what the file was when it was opened.
func (f *File) Stat() (fs.FileInfo, error) {
	if f.closed.Load() {
		return nil, f.failed("stat", fs.ErrClosed)
	}
	return f.stated, nil
}

// Info is the same as Stat.
func (f *File) Info() *FileInfo { return f.stated }

// Read reads what has arrived, or waits for more.
func (f *File) Read(p []byte) (int, error) {
	if f.closed.Load() {
		return 0, f.failed("read", fs.ErrClosed)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if err := f.fill(); err != nil {
		return 0, err
	}
	n := copy(p, f.pending)
	f.take(n)
	return n, nil
}

// WriteTo writes what is left of the file, without copying it.
func (f *File) WriteTo(w io.Writer) (int64, error) {
	if f.closed.Load() {
		return 0, f.failed("read", fs.ErrClosed)
	}
	var total int64
	for {
		if err := f.fill(); err == io.EOF {
			return total, nil
		} else if err != nil {
			return total, err
		}
		n, err := w.Write(f.pending)
		f.take(n)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
}

// ReadAt reads at an offset of the file, by a call of its own and whatever Limit the file was opened with.
func (f *File) ReadAt(p []byte, offset int64) (int, error) {
	switch {
	case f.closed.Load():
		return 0, f.failed("read", fs.ErrClosed)
	case offset < 0:
		return 0, f.failed("read", errors.New("negative offset"))
	case len(p) == 0:
		return 0, nil
	}
	part := f.files.handle(f.ctx, f.path, f.stated)
	defer part.Close()
	part.seen, part.position = f.seen, offset
	if int64(len(p)) < math.MaxInt64-offset {
		part.until = offset + int64(len(p))
	}
	n, err := io.ReadFull(part, p)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return n, err
}

// Seek moves to a place of the file, which costs a new call unless the place is just ahead. It is relative to the whole file,
// also when that was opened with Offset.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	if f.closed.Load() {
		return 0, f.failed("seek", fs.ErrClosed)
	}
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.position
	case io.SeekEnd:
		offset += f.stated.Size()
	default:
		return 0, f.failed("seek", fs.ErrInvalid)
	}
	if offset < 0 {
		return 0, f.failed("seek", fs.ErrInvalid)
	}
	if ahead := offset - f.position; ahead >= 0 && ahead <= int64(len(f.pending)) {
		f.take(int(ahead))
		return offset, nil
	}
	f.drop()
	f.position, f.pending, f.ended = offset, nil, false
	return offset, nil
}

// Close ends the call on the server. It fails with [fs.ErrClosed] when the file was closed before.
func (f *File) Close() error {
	if f.closed.Swap(true) {
		return f.failed("close", fs.ErrClosed)
	}
	f.cancel()
	return nil
}

// rest reads to the end.
func (f *File) rest() ([]byte, error) {
	const most = 64 << 20 // more than that is not set aside for what a file only claims to hold
	expected := min(max(min(f.stated.Size(), f.until)-f.position, 0), most)
	data := make([]byte, 0, expected)
	for {
		if err := f.fill(); err == io.EOF {
			return data, nil
		} else if err != nil {
			return nil, err
		}
		data = append(data, f.pending...)
		f.take(len(f.pending))
	}
}

func (f *File) take(n int) {
	f.pending = f.pending[n:]
	f.position += int64(n)
}

// fill waits until there is a pending byte; io.EOF when none comes.
func (f *File) fill() error {
	for len(f.pending) == 0 {
		if f.ended {
			return io.EOF
		}
		err := f.receive()
		if err == nil {
			continue
		}
		f.drop()
		if f.closed.Load() {
			return f.failed("read", fs.ErrClosed)
		}
		if err = f.lost.mend(f.ctx, f.files.client, err); err != nil {
			return err
		}
	}
	return nil
}

// receive takes one message, of a new call if there is none.
func (f *File) receive() error {
	client := f.files.client
	if f.stream == nil {
		ctx, cancel := context.WithCancel(f.ctx)
		part := fileRange{offset: f.position, limit: -1}
		if f.until < math.MaxInt64 {
			part.limit = max(f.until-f.position, 0)
		}
		stream, err := client.files.ReadFile(ctx, part.request(f.files.workspaceID, f.path))
		if err != nil {
			cancel()
			return client.failure(f.ctx, err, nil)
		}
		f.stream, f.hangUp = stream, cancel
	}
	response, err := f.stream.Recv()
	if err != nil {
		return client.streamFailure(f.ctx, err, f.stream.Trailer())
	}
	client.answered.Store(true)
	switch part := response.GetPart().(type) {
	case *pb.ReadFileResponse_Data:
		f.lost.over()
		f.pending = part.Data
	case *pb.ReadFileResponse_Info:
		return f.check(fileInfoOf(part.Info))
	case *pb.ReadFileResponse_End:
		f.ended = true
		f.drop()
	}
	return nil
}

// check compares the file with what it was when reading began.
func (f *File) check(info *FileInfo) error {
	if f.stated == nil {
		f.stated = info
	}
	if f.seen.CompareAndSwap(nil, info) {
		return nil
	}
	if seen := f.seen.Load(); seen.size == info.size && seen.modTime.Equal(info.modTime) {
		return nil
	}
	return &Error{
		Code: codes.Aborted, Reason: "CONTENT_CHANGED", Message: fmt.Sprintf("%q changed while it was read", f.path),
	}
}

// drop ends the call, if there is one.
func (f *File) drop() {
	if f.hangUp != nil {
		f.hangUp()
	}
	f.stream, f.hangUp = nil, nil
}

func (f *File) failed(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.path, Err: err}
}
