package workspaced

import (
	"context"
	"io"
	"iter"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// OffloadKind is what is stored.
type OffloadKind string

// The kinds of what is stored.
const (
	// OffloadContext is the messages of a session.
	OffloadContext OffloadKind = "context"
	// OffloadToolResult is the output of a tool call.
	OffloadToolResult OffloadKind = "tool_result"
	// OffloadData is bytes, which all sessions share.
	OffloadData OffloadKind = "data"
)

// OffloadInfo is something stored.
type OffloadInfo struct {
	Kind OffloadKind
	// Path is where the agent's file tools find it; URL is the same file as a workspace:/// URL.
	Path, URL  string
	Size       int64
	MediaType  string
	SessionID  string
	ToolCallID string
	// SHA256 of data, in hexadecimal.
	SHA256     string
	UpdateTime time.Time
}

// Offload keeps contexts, tool results and data, which do not fit into a model's context, in the workspace.
//
// What a method returned is durable. A call that fails or is cancelled before all was sent has stored nothing.
type Offload struct{ workspace *Workspace }

// Offload is what the workspace keeps for agents.
func (w *Workspace) Offload() *Offload { return &Offload{workspace: w} }

// OffloadOptions change [Offload.Context] and [Offload.ToolResult].
type OffloadOptions struct {
	// RequestID, the same again within a day, stores once. Empty: generated, so that repetitions after a broken connection do.
	RequestID string
}

// Context appends messages to the context of a session and returns the path of its file, which has one message a line. Data
// blocks with bytes are moved to files of their own. A call whose connection breaks is made again.
func (o *Offload) Context(
	ctx context.Context, sessionID string, messages []Message, options OffloadOptions,
) (path string, err error) {
	w := o.workspace
	prepared := make([]*pb.OffloadContextRequest, 0, len(messages))
	for _, message := range messages {
		made, err := message.proto()
		if err != nil {
			return "", invalidArgument(err.Error())
		}
		prepared = append(prepared, &pb.OffloadContextRequest{Part: &pb.OffloadContextRequest_Message{Message: made}})
	}
	start := contextStart(w, sessionID, options)
	return repeat(ctx, w.client, w.client.timeout, w.client.retryTimeout, func(ctx context.Context) (string, error) {
		return o.append(ctx, start, slices.Values(prepared), func() error { return nil })
	})
}

// ContextFrom is Context for messages that a sequence gives once: a broken connection is [ErrUnavailable], and so is stored
// nothing, unless only the answer was lost. An error of the sequence cancels the call, and is returned as it is.
func (o *Offload) ContextFrom(
	ctx context.Context, sessionID string, messages iter.Seq2[Message, error], options OffloadOptions,
) (path string, err error) {
	var failed error
	requests := func(yield func(*pb.OffloadContextRequest) bool) {
		for message, err := range messages {
			var made *pb.Message
			if err == nil {
				if made, err = message.proto(); err != nil {
					err = invalidArgument(err.Error())
				}
			}
			if err != nil {
				failed = err
				return
			}
			if !yield(&pb.OffloadContextRequest{Part: &pb.OffloadContextRequest_Message{Message: made}}) {
				return
			}
		}
	}
	return o.append(ctx, contextStart(o.workspace, sessionID, options), requests, func() error { return failed })
}

func contextStart(w *Workspace, sessionID string, options OffloadOptions) *pb.OffloadContextRequest {
	start := &pb.OffloadContextStart{WorkspaceId: w.ID, SessionId: sessionID, RequestId: options.RequestID}
	if start.RequestId == "" {
		start.RequestId = newID()
	}
	return &pb.OffloadContextRequest{Part: &pb.OffloadContextRequest_Start{Start: start}}
}

func (o *Offload) append(
	ctx context.Context, start *pb.OffloadContextRequest, messages iter.Seq[*pb.OffloadContextRequest], failed func() error,
) (string, error) {
	client := o.workspace.client
	call, err := openClientStream(ctx, client, client.offload.OffloadContext, start, nil)
	if err != nil {
		return "", err
	}
	defer call.abort()
	for message := range messages {
		if call.send(message); call.failed != nil {
			break
		}
	}
	if err := failed(); err != nil {
		return "", err
	}
	response, err := call.finish()
	return response.GetOffload().GetPath(), err
}

// ToolResult stores the output of a tool call and returns the path of its file. [ToolResult].Block makes the block. The call is
// repeated when a connection breaks, and stores once.
func (o *Offload) ToolResult(
	ctx context.Context, sessionID string, result ToolResultBlock, options OffloadOptions,
) (path string, err error) {
	w := o.workspace
	block, err := result.proto()
	if err != nil {
		return "", invalidArgument(err.Error())
	}
	request := &pb.OffloadToolResultRequest{
		WorkspaceId: w.ID, SessionId: sessionID, Result: block, RequestId: options.RequestID,
	}
	if request.RequestId == "" {
		request.RequestId = newID()
	}
	response, err := unary(ctx, w.client, w.client.offload.OffloadToolResult, request, w.client.timeout)
	return response.GetOffload().GetPath(), err
}

// OffloadDataOptions describe what [Offload.Data] stores.
type OffloadDataOptions struct {
	// MediaType decides the file's extension. Empty: application/octet-stream.
	MediaType string
	// Name is for display.
	Name string
	// SHA256 in hexadecimal that the bytes must have; else [ErrHashMismatch].
	SHA256 string
}

// Data stores what a reader gives under its hash, and returns a block that refers to it. The same bytes again are the same file.
func (o *Offload) Data(ctx context.Context, data io.Reader, options OffloadDataOptions) (DataBlock, error) {
	w := o.workspace
	start := &pb.OffloadDataStart{
		WorkspaceId: w.ID, MediaType: options.MediaType, Sha256: options.SHA256, Name: options.Name,
	}
	first := &pb.OffloadDataRequest{Part: &pb.OffloadDataRequest_Start{Start: start}}
	chunk := func(data []byte) *pb.OffloadDataRequest {
		return &pb.OffloadDataRequest{Part: &pb.OffloadDataRequest_Chunk{Chunk: data}}
	}
	content := func(w io.Writer) error { return copyTo(w, data) }
	response, err := upload(ctx, w.client, w.client.offload.OffloadData, first, chunk, content)
	if err != nil {
		return DataBlock{}, err
	}
	return dataBlockOf(response.GetData(), ""), nil
}

// ReadOffloadOptions choose a part of what is stored.
type ReadOffloadOptions struct {
	Offset int64
	// Length is the most bytes that are read. 0: to the end.
	Length int64
}

// Read gives the bytes of something stored, by its path or URL. Fails with [ErrOffloadNotFound].
func (o *Offload) Read(ctx context.Context, path string, options ReadOffloadOptions) ([]byte, error) {
	data := []byte{}
	for chunk, err := range o.Chunks(ctx, path, options) {
		if err != nil {
			return nil, err
		}
		data = append(data, chunk...)
	}
	return data, nil
}

// Chunks is Read in pieces of at most 256 KiB. An error comes last.
func (o *Offload) Chunks(ctx context.Context, path string, options ReadOffloadOptions) iter.Seq2[[]byte, error] {
	part := &pb.OffloadByteRange{Offset: uint64(max(options.Offset, 0))}
	if options.Length > 0 {
		part.Length = proto.Uint64(uint64(options.Length))
	}
	request := &pb.ReadOffloadRequest{
		WorkspaceId: o.workspace.ID, Path: path, Range: &pb.ReadOffloadRequest_Bytes{Bytes: part},
	}
	return parts(ctx, o, request, func(response *pb.ReadOffloadResponse) ([]byte, bool) {
		chunk := response.GetChunk()
		return chunk.GetData(), chunk != nil
	})
}

// MessagesOptions choose a part of a context.
type MessagesOptions struct {
	// Skip is the number of messages to leave out at the beginning.
	Skip int64
	// Limit is the most messages that are read. 0: to the end.
	Limit int64
}

// Messages gives the messages of a context in order, by its path or URL. An error comes last.
func (o *Offload) Messages(ctx context.Context, path string, options MessagesOptions) iter.Seq2[Message, error] {
	part := &pb.OffloadMessageRange{Skip: uint64(max(options.Skip, 0)), Limit: uint64(max(options.Limit, 0))}
	request := &pb.ReadOffloadRequest{
		WorkspaceId: o.workspace.ID, Path: path, Range: &pb.ReadOffloadRequest_Messages{Messages: part},
	}
	return parts(ctx, o, request, func(response *pb.ReadOffloadResponse) (Message, bool) {
		message := response.GetMessage()
		if message == nil {
			return Message{}, false
		}
		return messageOf(message.GetMessage()), true
	})
}

// parts gives what pick finds in the answers of a read.
func parts[T any](
	ctx context.Context, o *Offload, request *pb.ReadOffloadRequest, pick func(*pb.ReadOffloadResponse) (T, bool),
) iter.Seq2[T, error] {
	client := o.workspace.client
	return func(yield func(T, error) bool) {
		for response, err := range serverStream(ctx, client, client.offload.ReadOffload, request) {
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			if part, found := pick(response); found && !yield(part, nil) {
				return
			}
		}
	}
}

// ListOffloadsOptions say what is meant. The zero value means all.
type ListOffloadsOptions struct {
	// SessionID, when not empty, leaves only the contexts and tool results of the session.
	SessionID string
	Kind      OffloadKind
}

// List gives what is stored, by path.
func (o *Offload) List(ctx context.Context, options ListOffloadsOptions) ([]OffloadInfo, error) {
	w := o.workspace
	kind, err := enumNumber[pb.OffloadKind](string(options.Kind), "OFFLOAD_KIND_")
	if err != nil {
		return nil, err
	}
	return collect(pages(func(token string) ([]OffloadInfo, string, error) {
		request := &pb.ListOffloadsRequest{
			WorkspaceId: w.ID, SessionId: optionalID(options.SessionID), Kind: kind, PageSize: maxPageSize, PageToken: token,
		}
		response, err := unary(ctx, w.client, w.client.offload.ListOffloads, request, w.client.timeout)
		return each(response.GetOffloads(), offloadInfoOf), response.GetNextPageToken(), err
	}))
}

func offloadInfoOf(offload *pb.Offload) OffloadInfo {
	kind := OffloadData
	switch offload.GetKind() {
	case pb.OffloadKind_OFFLOAD_KIND_CONTEXT:
		kind = OffloadContext
	case pb.OffloadKind_OFFLOAD_KIND_TOOL_RESULT:
		kind = OffloadToolResult
	}
	return OffloadInfo{
		Kind:       kind,
		Path:       offload.GetPath(),
		URL:        offload.GetUrl(),
		Size:       int64(offload.GetSizeBytes()),
		MediaType:  offload.GetMediaType(),
		SessionID:  offload.GetSessionId(),
		ToolCallID: offload.GetToolCallId(),
		SHA256:     offload.GetSha256(),
		UpdateTime: when(offload.GetUpdateTime()),
	}
}
