package workspaced

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// The server sends a heartbeat after 10 s without output, so a stream silent for this long is dead.
const silence = 25 * time.Second

var decodeOutput = grpc.ForceCodecV2(newOutputCodec())

// eventStream is Exec or AttachProcess.
type eventStream struct {
	grpc.ClientStream
	recv func() (*pb.ProcessEvent, error)
	exec grpc.BidiStreamingClient[pb.ExecRequest, pb.ExecResponse] // nil for AttachProcess
}

// converse makes one call and handles its events. It returns when the call has ended, always with why, and leaves nothing.
func (a *attachment) converse(ctx context.Context, lost *outage) error {
	caller := ctx
	ctx, cancel := context.WithCancel(ctx)
	var sender sync.WaitGroup
	defer sender.Wait()
	defer cancel()
	patience := lost.patience(a.client.resumeTimeout)
	watchdog := time.AfterFunc(patience, cancel)
	defer watchdog.Stop()
	stream, err := a.call(ctx)
	if err != nil {
		return a.ended(caller, ctx, err, nil)
	}
	sending := false
	for {
		watchdog.Reset(patience)
		event, err := stream.recv()
		if err != nil {
			return a.ended(caller, ctx, err, stream.Trailer())
		}
		watchdog.Stop()
		patience = silence
		a.client.compareHeader(stream)
		switch event := event.GetEvent().(type) {
		case *pb.ProcessEvent_Output:
			if err := a.onOutput(ctx, event.Output, lost); err != nil {
				return err
			}
		case *pb.ProcessEvent_Started:
			a.onStarted(event.Started, lost)
			if stream.exec != nil && !sending {
				sending = true
				sender.Go(func() { a.send(ctx, stream.exec) })
			}
		case *pb.ProcessEvent_StdinAck:
			a.onAck(int64(event.StdinAck.GetOffset()), lost)
		case *pb.ProcessEvent_Gap:
			a.onGap(int64(event.Gap.GetFrom()), int64(event.Gap.GetTo()))
		case *pb.ProcessEvent_Heartbeat:
			lost.over()
		case *pb.ProcessEvent_Exited:
			a.onExit(exitOf(event.Exited))
		}
	}
}

// ended is why a call ended: by its caller, by the watchdog that cancels its own context, or by itself.
func (a *attachment) ended(caller, call context.Context, err error, trailer metadata.MD) error {
	if caller.Err() == nil && call.Err() != nil {
		return &Error{Code: codes.Unavailable, Message: "the server fell silent"}
	}
	return a.client.streamFailure(caller, err, trailer)
}

func (a *attachment) call(ctx context.Context) (eventStream, error) {
	a.mu.Lock()
	attach := &pb.ExecAttach{WorkspaceId: a.workspaceID, ProcessId: a.processID, Offset: uint64(a.nextRead)}
	starts := a.start != nil && a.started == nil
	a.mu.Unlock()
	if a.readOnly {
		request := &pb.AttachProcessRequest{WorkspaceId: attach.WorkspaceId, ProcessId: attach.ProcessId, Offset: attach.Offset}
		stream, err := a.client.execution.AttachProcess(ctx, request, decodeOutput)
		if err != nil {
			return eventStream{}, err
		}
		return eventStream{ClientStream: stream, recv: func() (*pb.ProcessEvent, error) {
			response, err := stream.Recv()
			return response.GetEvent(), err
		}}, nil
	}
	stream, err := a.client.execution.Exec(ctx, decodeOutput)
	if err != nil {
		return eventStream{}, err
	}
	first := &pb.ExecRequest{Request: &pb.ExecRequest_Attach{Attach: attach}}
	if starts {
		// Also when an answer was lost: the id is ours, so the same start again attaches to what it started.
		first.Request = &pb.ExecRequest_Start{Start: &pb.ExecStart{
			WorkspaceId: a.workspaceID, ProcessId: a.processID, Spec: a.start,
		}}
	}
	_ = stream.Send(first) // an error of it is told by the first Recv
	return eventStream{ClientStream: stream, exec: stream, recv: func() (*pb.ProcessEvent, error) {
		response, err := stream.Recv()
		return response.GetEvent(), err
	}}, nil
}

// send is what goes to the process on one call: the size, input from the first byte that was not acknowledged, the close. It
// returns when the call has ended; receiving tells how.
func (a *attachment) send(ctx context.Context, stream grpc.BidiStreamingClient[pb.ExecRequest, pb.ExecResponse]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sent, size, closed := a.stdin.acked, Size{}, false
	for a.exit == nil {
		var request *pb.ExecRequest
		offset, chunk := a.stdin.from(sent)
		switch {
		// Before input that may have been written after it; for a terminal, to have its size early is no harm.
		case a.size != size:
			size = a.size
			resize := &pb.PtySize{Cols: uint32(size.Cols), Rows: uint32(size.Rows)}
			request = &pb.ExecRequest{Request: &pb.ExecRequest_Resize{Resize: resize}}
		case chunk != nil && a.stdinBroken == nil:
			sent = offset + int64(len(chunk))
			request = &pb.ExecRequest{Request: &pb.ExecRequest_Stdin{Stdin: &pb.StdinChunk{Offset: uint64(offset), Data: chunk}}}
		case a.stdinClosed && !closed && a.stdinBroken == nil:
			closed = true
			end := uint64(a.stdin.end)
			request = &pb.ExecRequest{Request: &pb.ExecRequest_CloseStdin{CloseStdin: &pb.CloseStdin{Offset: &end}}}
		}
		wake := a.wake.wait()
		a.mu.Unlock()
		if request != nil {
			if err := stream.Send(request); err != nil {
				a.mu.Lock()
				return
			}
		} else {
			select {
			case <-wake:
			case <-ctx.Done():
				a.mu.Lock()
				return
			}
		}
		a.mu.Lock()
	}
}

// write takes bytes for standard input, waiting while 1 MiB is on its way. It returns how many were taken.
func (a *attachment) write(ctx context.Context, data []byte) (int, error) {
	if a.readOnly {
		return 0, stdinClosed("the process was attached to only for reading")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := 0
	for {
		if err := a.checkStdin(); err != nil {
			return taken, err
		}
		if size := min(a.stdin.room(), chunkBytes, len(data)-taken); size > 0 {
			a.stdin.append(append([]byte(nil), data[taken:taken+size]...))
			taken += size
			a.wake.fire()
		}
		if taken == len(data) {
			return taken, nil
		}
		if a.stdin.room() <= 0 {
			if err := a.await(ctx); err != nil {
				return taken, err
			}
		}
	}
}

func (a *attachment) checkStdin() error {
	switch {
	case a.closed:
		return errHandleClosed()
	case a.stdinBroken != nil:
		return stdinClosed(a.stdinBroken.Error())
	case a.exit != nil:
		return stdinClosed("the process has ended")
	case a.err != nil:
		return a.err
	case a.stdinClosed:
		return stdinClosed("standard input is closed")
	case a.done == nil:
		return errDetached
	default:
		return nil
	}
}

func stdinClosed(message string) *Error {
	return &Error{Code: codes.FailedPrecondition, Reason: "STDIN_CLOSED", Message: message}
}

func (a *attachment) closeStdin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stdinClosed = true
	a.wake.fire()
	a.changed.fire()
}

func (a *attachment) resize(size Size) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.size = size
	a.wake.fire()
}
