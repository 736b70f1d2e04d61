package workspaced

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// discardTimeout bounds the removal of what an upload that is given up has left. What cannot be reached removes it after an hour.
const discardTimeout = 5 * time.Second

// Write writes a file as a whole: it replaces the old one at once, when all is there and on the workspace's disk. What Write
// returns has the SHA256 of the content.
//
// It goes on where it was when a connection breaks. A write that fails or is cancelled leaves the old file as it was.
// Fails with [ErrFileExists], [ErrContentChanged] and [ErrHashMismatch] as the options say, and with [ErrDiskFull].
func (f *Files) Write(ctx context.Context, path string, data []byte, options ...WriteOption) (*FileInfo, error) {
	return f.write(ctx, f.asked(path, options), &fileContent{
		size:       int64(len(data)),
		repeatable: true,
		from: func(w io.Writer, offset int64) error {
			_, err := w.Write(data[offset:])
			return err
		},
	})
}

// WriteFrom writes what a reader gives up to [io.EOF], as [Files.Write] does. Another error of the reader cancels the write, and
// is returned as it is.
//
// A reader that is an [io.Seeker] is read again from where a broken connection had come to. Any other gives its bytes once: then
// WriteFrom fails with [ErrUnavailable], and nothing was written. A Read that blocks delays the end of a cancelled WriteFrom.
func (f *Files) WriteFrom(ctx context.Context, path string, r io.Reader, options ...WriteOption) (*FileInfo, error) {
	return f.write(ctx, f.asked(path, options), contentOf(r))
}

// Create opens a file for writing. Nobody sees it before Close, which replaces the old one at once. The bytes are not kept, so
// that a broken connection is [ErrUnavailable], and nothing was written. The end of the context is that of the write too.
//
//	w, err := ws.Files().Create(ctx, "report.csv")
//	if err != nil {
//		return err
//	}
//	defer w.Abort() // does nothing after Close
//	if err := produce(w); err != nil {
//		return err
//	}
//	return w.Close()
func (f *Files) Create(ctx context.Context, path string, options ...WriteOption) (*FileWriter, error) {
	asked := f.asked(path, options)
	ctx, cancel := context.WithCancel(ctx)
	call, err := f.open(ctx, asked.header)
	if err != nil {
		cancel()
		return nil, err
	}
	call.report(0, -1, asked.progress)
	return &FileWriter{call: call, path: path, cancel: cancel}, nil
}

// FileWriter writes a file, by one goroutine at a time. Every one must be closed or aborted.
type FileWriter struct {
	call   *clientStream[pb.WriteFileRequest, pb.WriteFileResponse]
	path   string
	cancel context.CancelFunc
	info   *FileInfo
	err    error
}

// Write gathers and sends bytes. It fails with the error of the call, and nothing is written then.
func (w *FileWriter) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.call.Write(p)
	return n, w.outcome(err)
}

// ReadFrom sends what a reader gives. Its error is returned as it is, and the file can still be written.
func (w *FileWriter) ReadFrom(r io.Reader) (int64, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.call.ReadFrom(r)
	return n, w.outcome(err)
}

// outcome asks for the status of a call that the server has ended.
func (w *FileWriter) outcome(err error) error {
	if errors.Is(err, errAnswered) {
		_, err = w.call.finish()
		if err == nil {
			err = unavailable("the server ended the write before the file was complete")
		}
		w.err = err
		w.cancel()
	}
	return err
}

// Close replaces the file with what was written. Without a nil error from it, the old file is as it was, but for
// [ErrUnavailable] and the end of the context, when the answer may have been lost. It fails with [fs.ErrClosed] after Close and
// Abort.
func (w *FileWriter) Close() error {
	if w.err != nil {
		return w.err
	}
	defer w.cancel()
	w.err = &fs.PathError{Op: "close", Path: w.path, Err: fs.ErrClosed}
	response, err := w.call.finish()
	if err != nil {
		return err
	}
	w.info = fileInfoOf(response.GetInfo())
	return nil
}

// Abort gives up: the old file stays as it was. It does nothing after Close.
func (w *FileWriter) Abort() {
	if w.err == nil {
		w.err = &fs.PathError{Op: "write", Path: w.path, Err: fs.ErrClosed}
	}
	w.cancel()
}

// Info is the file that Close has made, with its SHA256; nil before.
func (w *FileWriter) Info() *FileInfo { return w.info }

// fileContent is what is to be written.
type fileContent struct {
	size       int64 // -1: unknown
	repeatable bool  // from may be called again, with another offset
	from       func(w io.Writer, offset int64) error
}

// contentOf is what a reader gives, from where it is.
func contentOf(r io.Reader) *fileContent {
	once := &fileContent{size: -1, from: func(w io.Writer, _ int64) error { return copyTo(w, r) }}
	if buffer, ok := r.(*bytes.Buffer); ok {
		once.size = int64(buffer.Len())
	}
	seeker, ok := r.(io.Seeker)
	if !ok {
		return once
	}
	start, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		return once // a pipe is an os.File too
	}
	size := int64(-1)
	if end, err := seeker.Seek(0, io.SeekEnd); err == nil {
		size = max(end-start, 0)
	}
	return &fileContent{size: size, repeatable: true, from: func(w io.Writer, offset int64) error {
		if _, err := seeker.Seek(start+offset, io.SeekStart); err != nil {
			return err
		}
		return copyTo(w, r)
	}}
}

// copyTo lets the writer read: it fills whole messages, whatever the reader would write at once.
func copyTo(w io.Writer, r io.Reader) error {
	if to, ok := w.(io.ReaderFrom); ok {
		_, err := to.ReadFrom(r)
		return err
	}
	_, err := io.Copy(w, r)
	return err
}

func (f *Files) asked(path string, options []WriteOption) fileWrite {
	asked := fileWrite{header: &pb.WriteFileHeader{WorkspaceId: f.workspaceID, Path: path, Parents: true}}
	for _, option := range options {
		option.applyWrite(&asked)
	}
	return asked
}

func (f *Files) write(ctx context.Context, asked fileWrite, content *fileContent) (*FileInfo, error) {
	if content.repeatable {
		asked.header.UploadId = newID()
	}
	info, err := f.writeAll(ctx, asked, content)
	if err != nil && content.repeatable {
		// Beside the caller, who does not wait for it.
		f.client.companion(func() { f.discard(asked.header) })
	}
	return info, err
}

func (f *Files) writeAll(ctx context.Context, asked fileWrite, content *fileContent) (*FileInfo, error) {
	var lost outage
	var offset int64
	for {
		asked.header.Offset = uint64(offset)
		response, err := f.send(ctx, asked, content, offset)
		if err == nil {
			return fileInfoOf(response.GetInfo()), nil
		}
		if !content.repeatable {
			return nil, err
		}
		if err := lost.mend(ctx, f.client, err); err != nil {
			return nil, err
		}
		has, err := f.uploaded(ctx, asked.header)
		if err == nil {
			offset = has
		} else if err := lost.mend(ctx, f.client, err); err != nil {
			return nil, err
		}
	}
}

// send makes one call with the content from an offset. An error of the content cancels it and is returned as it is.
func (f *Files) send(
	ctx context.Context, asked fileWrite, content *fileContent, offset int64,
) (*pb.WriteFileResponse, error) {
	call, err := f.open(ctx, asked.header)
	if err != nil {
		return nil, err
	}
	defer call.abort()
	call.report(offset, content.size, asked.progress)
	if err := content.from(call, offset); err != nil && call.failed == nil {
		return nil, err
	}
	return call.finish()
}

// uploaded tells how much of an upload the workspace has.
func (f *Files) uploaded(ctx context.Context, header *pb.WriteFileHeader) (int64, error) {
	query := proto.CloneOf(header)
	query.QueryOffset = true
	call, err := f.open(ctx, query)
	if err != nil {
		return 0, err
	}
	response, err := call.finish()
	return int64(response.GetNextOffset()), err
}

// discard removes what an upload that is given up has left. There may be nothing, and the server may be gone.
func (f *Files) discard(header *pb.WriteFileHeader) {
	ctx, cancel := context.WithTimeout(context.Background(), discardTimeout)
	defer cancel()
	abandoned := &pb.WriteFileHeader{
		WorkspaceId: header.GetWorkspaceId(), Path: header.GetPath(), UploadId: header.GetUploadId(), Discard: true,
	}
	if call, err := f.open(ctx, abandoned); err == nil {
		_, _ = call.finish()
	}
}

func (f *Files) open(
	ctx context.Context, header *pb.WriteFileHeader,
) (*clientStream[pb.WriteFileRequest, pb.WriteFileResponse], error) {
	first := &pb.WriteFileRequest{Part: &pb.WriteFileRequest_Header{Header: proto.CloneOf(header)}}
	return openClientStream(ctx, f.client, f.client.files.WriteFile, first, func(data []byte) *pb.WriteFileRequest {
		return &pb.WriteFileRequest{Part: &pb.WriteFileRequest_Data{Data: data}}
	})
}
