package workspaced

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
)

// fileChunkBytes is the size of a message with data: fewer and larger ones cost more.
const fileChunkBytes = 1 << 18

// errAnswered ends the sending of a stream that the server has answered already. The answer says why.
var errAnswered = errors.New("workspaced: the server has answered")

// clientStream sends a first message and then bytes in chunks, and receives one answer.
type clientStream[Request, Response any] struct {
	ctx    context.Context
	client *Client
	stream grpc.ClientStreamingClient[Request, Response]
	cancel context.CancelFunc
	chunk  func([]byte) *Request
	buffer []byte
	failed error

	progress    func(done, total int64)
	done, total int64
}

// openClientStream begins a call. Its end, however it comes, is finish or abort.
func openClientStream[Request, Response any](
	ctx context.Context,
	client *Client,
	method func(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[Request, Response], error),
	first *Request,
	chunk func([]byte) *Request,
) (*clientStream[Request, Response], error) {
	callContext, cancel := context.WithCancel(ctx)
	stream, err := method(callContext)
	if err != nil {
		cancel()
		return nil, client.failure(ctx, err, nil)
	}
	s := &clientStream[Request, Response]{ctx: ctx, client: client, stream: stream, cancel: cancel, chunk: chunk}
	s.send(first)
	return s, nil
}

// report calls progress with what is sent, from a number of bytes on that were sent before.
func (s *clientStream[Request, Response]) report(done, total int64, progress func(done, total int64)) {
	s.done, s.total, s.progress = done, total, progress
}

func (s *clientStream[Request, Response]) send(message *Request) {
	if s.failed == nil && s.stream.Send(message) != nil {
		s.failed = errAnswered // what Send returns is not the status, which finish receives
	}
}

// Write gathers small pieces: nobody sees anything before its end.
func (s *clientStream[Request, Response]) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 && s.failed == nil {
		if len(s.buffer) == 0 && len(p) >= fileChunkBytes {
			s.sendData(p[:fileChunkBytes]) // which encodes it, and keeps nothing
			written += fileChunkBytes
			p = p[fileChunkBytes:]
			continue
		}
		if s.buffer == nil {
			s.buffer = make([]byte, 0, fileChunkBytes)
		}
		n := min(len(p), fileChunkBytes-len(s.buffer))
		s.buffer = append(s.buffer, p[:n]...)
		written += n
		p = p[n:]
		if len(s.buffer) == fileChunkBytes {
			s.flush()
		}
	}
	return written, s.failed
}

// ReadFrom sends what a reader gives. Its error is returned as it is.
func (s *clientStream[Request, Response]) ReadFrom(r io.Reader) (int64, error) {
	var total int64
	for s.failed == nil {
		if s.buffer == nil {
			s.buffer = make([]byte, 0, fileChunkBytes)
		}
		n, err := r.Read(s.buffer[len(s.buffer):fileChunkBytes])
		s.buffer = s.buffer[:len(s.buffer)+n]
		total += int64(n)
		if len(s.buffer) == fileChunkBytes {
			s.flush()
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
	return total, s.failed
}

func (s *clientStream[Request, Response]) sendData(data []byte) {
	s.send(s.chunk(data))
	s.done += int64(len(data))
	if s.progress != nil && s.failed == nil {
		s.progress(s.done, s.total)
	}
}

// flush sends what was gathered. The message keeps the buffer, which is not used again.
func (s *clientStream[Request, Response]) flush() {
	if len(s.buffer) > 0 {
		s.sendData(s.buffer)
		s.buffer = nil
	}
}

// finish sends the rest and returns the answer.
func (s *clientStream[Request, Response]) finish() (*Response, error) {
	defer s.cancel()
	s.flush()
	response, err := s.stream.CloseAndRecv()
	if err != nil {
		return nil, s.client.failure(s.ctx, err, s.stream.Trailer())
	}
	s.client.answered.Store(true)
	return response, nil
}

// abort cancels the call on the server, which then leaves everything as it was.
func (s *clientStream[Request, Response]) abort() { s.cancel() }

// upload makes a whole call with the bytes that content writes. An error of content cancels it and is returned as it is.
func upload[Request, Response any](
	ctx context.Context,
	client *Client,
	method func(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[Request, Response], error),
	first *Request,
	chunk func([]byte) *Request,
	content func(io.Writer) error,
) (*Response, error) {
	s, err := openClientStream(ctx, client, method, first, chunk)
	if err != nil {
		return nil, err
	}
	if content != nil {
		if err := content(s); err != nil && s.failed == nil {
			s.abort()
			return nil, err
		}
	}
	return s.finish()
}
