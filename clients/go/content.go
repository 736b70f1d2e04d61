package workspaced

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// Role says who wrote a message.
type Role string

// The roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleSystem    Role = "system"
)

// ToolResultState says how a tool call ended.
type ToolResultState string

// The ends of a tool call. Of one that this version does not know, ToolSuccess stands in.
const (
	ToolSuccess ToolResultState = "success"
	// ToolError: the tool ran and reports an error that a model can act on.
	ToolError ToolResultState = "error"
	// ToolInterrupted: the call was cancelled or timed out; the output is what had arrived by then.
	ToolInterrupted ToolResultState = "interrupted"
	// ToolDenied: a policy or a person refused the call.
	ToolDenied ToolResultState = "denied"
	// ToolRunning: the call was still running when the block was written.
	ToolRunning ToolResultState = "running"
)

// Message is one turn of an agent's conversation.
type Message struct {
	// ID is the caller's; the server makes one when it is empty.
	ID      string
	Role    Role
	Name    string
	Content []Block
	// Metadata is kept and returned unchanged; it must be encodable as a JSON object.
	Metadata map[string]any
	// CreateTime is the server's time of receipt when it is zero.
	CreateTime time.Time
}

// Block is one piece of a message or of a tool's result: a [TextBlock], [ThinkingBlock], [DataBlock], [ToolCallBlock],
// [ToolResultBlock], [HintBlock], or an [UnknownBlock] of a newer server. Use a type switch.
type Block interface {
	contentBlock() (*pb.ContentBlock, error)
}

// TextBlock is plain text, in UTF-8.
type TextBlock struct {
	ID   string
	Text string
}

// ThinkingBlock is reasoning that a model gave beside its answer. Signature is its provider's proof, to be handed back
// unchanged.
type ThinkingBlock struct {
	ID        string
	Thinking  string
	Signature string
}

// DataBlock is bytes with a media type: inline in Data, or at URL, where workspace:///data/… is a file of the workspace.
// Exactly one of the two is set; Data may be empty, but not nil.
type DataBlock struct {
	ID        string
	MediaType string
	Data      []byte
	URL       string
	Name      string
}

// ToolCallBlock is a model's request to call a tool. RawInput is the text of the arguments when it must stay as it is.
type ToolCallBlock struct {
	ID       string
	Name     string
	Input    map[string]any
	RawInput string
}

// ToolResultBlock is the answer to a tool call, whose id it has. An empty State is [ToolSuccess].
type ToolResultBlock struct {
	ID     string
	Name   string
	Output []Block
	State  ToolResultState
}

// HintBlock is a note of the agent's framework to the model.
type HintBlock struct {
	ID      string
	Content []Block
	Source  string
}

// UnknownBlock is a block of a kind that this version does not know. It is sent back as it came.
type UnknownBlock struct {
	ID  string
	raw *pb.ContentBlock
}

func (b TextBlock) contentBlock() (*pb.ContentBlock, error) {
	return &pb.ContentBlock{Id: b.ID, Block: &pb.ContentBlock_Text{Text: &pb.TextBlock{Text: b.Text}}}, nil
}

func (b ThinkingBlock) contentBlock() (*pb.ContentBlock, error) {
	thinking := &pb.ThinkingBlock{Thinking: b.Thinking, Signature: b.Signature}
	return &pb.ContentBlock{Id: b.ID, Block: &pb.ContentBlock_Thinking{Thinking: thinking}}, nil
}

func (b DataBlock) contentBlock() (*pb.ContentBlock, error) {
	data := &pb.DataBlock{MediaType: b.MediaType, Name: b.Name}
	switch {
	case (b.Data == nil) == (b.URL == ""):
		return nil, errors.New("workspaced: a data block has either Data or a URL")
	case b.Data != nil:
		data.Source = &pb.DataBlock_Bytes{Bytes: b.Data}
	default:
		data.Source = &pb.DataBlock_Url{Url: b.URL}
	}
	return &pb.ContentBlock{Id: b.ID, Block: &pb.ContentBlock_Data{Data: data}}, nil
}

func (b ToolCallBlock) contentBlock() (*pb.ContentBlock, error) {
	input, err := jsonObject(b.Input)
	if err != nil {
		return nil, fmt.Errorf("workspaced: input of the tool call %q: %w", b.ID, err)
	}
	call := &pb.ToolCallBlock{Id: b.ID, Name: b.Name, Input: input, RawInput: b.RawInput}
	return &pb.ContentBlock{Block: &pb.ContentBlock_ToolCall{ToolCall: call}}, nil
}

func (b ToolResultBlock) contentBlock() (*pb.ContentBlock, error) {
	result, err := b.proto()
	if err != nil {
		return nil, err
	}
	return &pb.ContentBlock{Block: &pb.ContentBlock_ToolResult{ToolResult: result}}, nil
}

func (b ToolResultBlock) proto() (*pb.ToolResultBlock, error) {
	output, err := blocksToProto(b.Output)
	if err != nil {
		return nil, err
	}
	state, known := toolResultStates[b.State]
	if !known {
		return nil, fmt.Errorf("workspaced: %q is no state of a tool result", b.State)
	}
	return &pb.ToolResultBlock{Id: b.ID, Name: b.Name, Output: output, State: state}, nil
}

func (b HintBlock) contentBlock() (*pb.ContentBlock, error) {
	content, err := blocksToProto(b.Content)
	if err != nil {
		return nil, err
	}
	hint := &pb.HintBlock{Content: content, Source: b.Source}
	return &pb.ContentBlock{Id: b.ID, Block: &pb.ContentBlock_Hint{Hint: hint}}, nil
}

func (b UnknownBlock) contentBlock() (*pb.ContentBlock, error) {
	if b.raw == nil {
		return nil, errors.New("workspaced: an UnknownBlock is one that a server sent")
	}
	return proto.CloneOf(b.raw), nil
}

var (
	roles = map[Role]pb.Role{
		RoleUser: pb.Role_ROLE_USER, RoleAssistant: pb.Role_ROLE_ASSISTANT, RoleSystem: pb.Role_ROLE_SYSTEM,
	}
	toolResultStates = map[ToolResultState]pb.ToolResultState{
		"":              pb.ToolResultState_TOOL_RESULT_STATE_SUCCESS,
		ToolSuccess:     pb.ToolResultState_TOOL_RESULT_STATE_SUCCESS,
		ToolError:       pb.ToolResultState_TOOL_RESULT_STATE_ERROR,
		ToolInterrupted: pb.ToolResultState_TOOL_RESULT_STATE_INTERRUPTED,
		ToolDenied:      pb.ToolResultState_TOOL_RESULT_STATE_DENIED,
		ToolRunning:     pb.ToolResultState_TOOL_RESULT_STATE_RUNNING,
	}
)

func roleOf(number pb.Role) Role {
	switch number {
	case pb.Role_ROLE_ASSISTANT:
		return RoleAssistant
	case pb.Role_ROLE_SYSTEM:
		return RoleSystem
	default:
		return RoleUser
	}
}

func toolResultStateOf(number pb.ToolResultState) ToolResultState {
	switch number {
	case pb.ToolResultState_TOOL_RESULT_STATE_ERROR:
		return ToolError
	case pb.ToolResultState_TOOL_RESULT_STATE_INTERRUPTED:
		return ToolInterrupted
	case pb.ToolResultState_TOOL_RESULT_STATE_DENIED:
		return ToolDenied
	case pb.ToolResultState_TOOL_RESULT_STATE_RUNNING:
		return ToolRunning
	default:
		return ToolSuccess
	}
}

func (m Message) proto() (*pb.Message, error) {
	role, known := roles[m.Role]
	if !known {
		return nil, fmt.Errorf("workspaced: %q is no role", m.Role)
	}
	content, err := blocksToProto(m.Content)
	if err != nil {
		return nil, err
	}
	made := &pb.Message{Id: m.ID, Role: role, Name: m.Name, Content: content}
	if len(m.Metadata) > 0 {
		if made.Metadata, err = jsonObject(m.Metadata); err != nil {
			return nil, fmt.Errorf("workspaced: metadata of a message: %w", err)
		}
	}
	if !m.CreateTime.IsZero() {
		made.CreateTime = timestamppb.New(m.CreateTime)
	}
	return made, nil
}

func messageOf(message *pb.Message) Message {
	return Message{
		ID:         message.GetId(),
		Role:       roleOf(message.GetRole()),
		Name:       message.GetName(),
		Content:    blocksOf(message.GetContent()),
		Metadata:   message.GetMetadata().AsMap(),
		CreateTime: when(message.GetCreateTime()),
	}
}

func blocksToProto(blocks []Block) ([]*pb.ContentBlock, error) {
	made := make([]*pb.ContentBlock, 0, len(blocks))
	for _, block := range blocks {
		if block == nil {
			return nil, errors.New("workspaced: a content block is nil")
		}
		one, err := block.contentBlock()
		if err != nil {
			return nil, err
		}
		made = append(made, one)
	}
	return made, nil
}

func blocksOf(blocks []*pb.ContentBlock) []Block {
	made := make([]Block, 0, len(blocks))
	for _, block := range blocks {
		made = append(made, blockOf(block))
	}
	return made
}

func blockOf(block *pb.ContentBlock) Block {
	switch kind := block.GetBlock().(type) {
	case *pb.ContentBlock_Text:
		return TextBlock{ID: block.GetId(), Text: kind.Text.GetText()}
	case *pb.ContentBlock_Thinking:
		return ThinkingBlock{block.GetId(), kind.Thinking.GetThinking(), kind.Thinking.GetSignature()}
	case *pb.ContentBlock_Data:
		return dataBlockOf(kind.Data, block.GetId())
	case *pb.ContentBlock_ToolCall:
		call := kind.ToolCall
		return ToolCallBlock{call.GetId(), call.GetName(), call.GetInput().AsMap(), call.GetRawInput()}
	case *pb.ContentBlock_ToolResult:
		result := kind.ToolResult
		return ToolResultBlock{
			result.GetId(), result.GetName(), blocksOf(result.GetOutput()), toolResultStateOf(result.GetState()),
		}
	case *pb.ContentBlock_Hint:
		return HintBlock{block.GetId(), blocksOf(kind.Hint.GetContent()), kind.Hint.GetSource()}
	default:
		return UnknownBlock{ID: block.GetId(), raw: block}
	}
}

func dataBlockOf(block *pb.DataBlock, id string) DataBlock {
	made := DataBlock{ID: id, MediaType: block.GetMediaType(), URL: block.GetUrl(), Name: block.GetName()}
	if inline, ok := block.GetSource().(*pb.DataBlock_Bytes); ok {
		made.Data = append([]byte{}, inline.Bytes...)
	}
	return made
}
