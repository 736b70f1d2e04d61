package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"github.com/workspaced/workspaced/clients/go"
)

func init() {
	register(map[string]operation{
		"offload_context":     offloadContext,
		"offload_tool_result": offloadToolResult,
		"offload_data":        offloadData,
		"list_offloads":       listOffloads,
		"read_offload":        readOffload,
		"read_messages":       readMessages,
	})
	scopes["messages"] = func(ctx context.Context, s *session, a args, item func() bool) error {
		for _, err := range s.workspace(a).Offload().Messages(ctx, a.str("path", ""), workspaced.MessagesOptions{}) {
			if err != nil || !item() {
				return err
			}
		}
		return nil
	}
}

// blocksOf is [BLOCK], without those that the library does not know.
func blocksOf(blocks []workspaced.Block) []object {
	shown := []object{}
	for _, block := range blocks {
		switch block := block.(type) {
		case workspaced.TextBlock:
			shown = append(shown, object{"type": "text", "text": block.Text})
		case workspaced.ThinkingBlock:
			shown = append(shown, object{"type": "thinking", "thinking": block.Thinking, "signature": block.Signature})
		case workspaced.DataBlock:
			data := object{"type": "data", "media_type": block.MediaType, "name": block.Name}
			if block.Data != nil {
				data["data"] = base64.StdEncoding.EncodeToString(block.Data)
			} else {
				data["url"] = block.URL
			}
			shown = append(shown, data)
		case workspaced.ToolCallBlock:
			shown = append(shown, object{"type": "tool_call", "id": block.ID, "name": block.Name, "input": block.Input})
		case workspaced.ToolResultBlock:
			shown = append(shown, object{
				"type": "tool_result", "id": block.ID, "name": block.Name, "output": blocksOf(block.Output), "state": block.State,
			})
		case workspaced.HintBlock:
			shown = append(shown, object{"type": "hint", "content": blocksOf(block.Content), "source": block.Source})
		}
	}
	return shown
}

func messagesOf(messages []workspaced.Message) []object {
	shown := []object{}
	for _, message := range messages {
		shown = append(shown, object{"role": message.Role, "name": message.Name, "content": blocksOf(message.Content)})
	}
	return shown
}

// blockArgument is BLOCK of an argument.
type blockArgument struct {
	Type      string         `json:"type"`
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Text      string         `json:"text"`
	Thinking  string         `json:"thinking"`
	Signature string         `json:"signature"`
	MediaType string         `json:"media_type"`
	Data      []byte         `json:"data"`
	URL       string         `json:"url"`
	Input     map[string]any `json:"input"`
	Output    blockArguments `json:"output"`
	State     string         `json:"state"`
	Content   blockArguments `json:"content"`
	Source    string         `json:"source"`
}

// blockArguments may be a text instead of a list.
type blockArguments []blockArgument

func (b *blockArguments) UnmarshalJSON(encoded []byte) error {
	var text string
	if json.Unmarshal(encoded, &text) == nil {
		*b = blockArguments{{Type: "text", Text: text}}
		return nil
	}
	var list []blockArgument
	err := json.Unmarshal(encoded, &list)
	*b = list
	return err
}

func (b blockArguments) blocks() []workspaced.Block {
	made := make([]workspaced.Block, 0, len(b))
	for _, block := range b {
		made = append(made, block.block())
	}
	return made
}

func (b blockArgument) block() workspaced.Block {
	switch b.Type {
	case "text":
		return workspaced.TextBlock{ID: b.ID, Text: b.Text}
	case "thinking":
		return workspaced.ThinkingBlock{ID: b.ID, Thinking: b.Thinking, Signature: b.Signature}
	case "data":
		return workspaced.DataBlock{ID: b.ID, MediaType: b.MediaType, Data: b.Data, URL: b.URL, Name: b.Name}
	case "tool_call":
		return workspaced.ToolCallBlock{ID: b.ID, Name: b.Name, Input: b.Input}
	case "tool_result":
		return b.result()
	case "hint":
		return workspaced.HintBlock{ID: b.ID, Content: b.Content.blocks(), Source: b.Source}
	default:
		panic(fmt.Sprintf("no block of type %q", b.Type))
	}
}

func (b blockArgument) result() workspaced.ToolResultBlock {
	return workspaced.ToolResultBlock{
		ID: b.ID, Name: b.Name, Output: b.Output.blocks(), State: workspaced.ToolResultState(b.State),
	}
}

func offloadContext(ctx context.Context, s *session, a args) (any, error) {
	var given []struct {
		Role    string         `json:"role"`
		Name    string         `json:"name"`
		Content blockArguments `json:"content"`
	}
	a.into("messages", &given)
	messages := make([]workspaced.Message, 0, len(given))
	for _, message := range given {
		messages = append(messages, workspaced.Message{
			Role: workspaced.Role(message.Role), Name: message.Name, Content: message.Content.blocks(),
		})
	}
	options := workspaced.OffloadOptions{RequestID: a.str("request_id", "")}
	offload := s.workspace(a).Offload()
	var path string
	var err error
	if a.flag("as_stream") {
		path, err = offload.ContextFrom(ctx, a.str("session_id", ""), sequence(messages), options)
	} else {
		path, err = offload.Context(ctx, a.str("session_id", ""), messages, options)
	}
	return object{"path": path}, err
}

func sequence(messages []workspaced.Message) iter.Seq2[workspaced.Message, error] {
	return func(yield func(workspaced.Message, error) bool) {
		for _, message := range messages {
			if !yield(message, nil) {
				return
			}
		}
	}
}

func offloadToolResult(ctx context.Context, s *session, a args) (any, error) {
	var result blockArgument
	a.into("result", &result)
	options := workspaced.OffloadOptions{RequestID: a.str("request_id", "")}
	path, err := s.workspace(a).Offload().ToolResult(ctx, a.str("session_id", ""), result.result(), options)
	return object{"path": path}, err
}

func offloadData(ctx context.Context, s *session, a args) (any, error) {
	options := workspaced.OffloadDataOptions{
		MediaType: a.str("media_type", ""), Name: a.str("name", ""), SHA256: a.str("sha256", ""),
	}
	block, err := s.workspace(a).Offload().Data(ctx, a.data("data"), options)
	return object{"url": block.URL, "media_type": block.MediaType}, err
}

func listOffloads(ctx context.Context, s *session, a args) (any, error) {
	options := workspaced.ListOffloadsOptions{
		SessionID: a.str("session_id", ""), Kind: workspaced.OffloadKind(a.str("kind", "")),
	}
	found, err := s.workspace(a).Offload().List(ctx, options)
	paths, kinds := []string{}, []string{}
	for _, info := range found {
		paths, kinds = append(paths, info.Path), append(kinds, string(info.Kind))
	}
	slices.Sort(paths)
	slices.Sort(kinds)
	return object{"paths": paths, "kinds": kinds}, err
}

func readOffload(ctx context.Context, s *session, a args) (any, error) {
	options := workspaced.ReadOffloadOptions{Offset: int64(a.integer("offset", 0)), Length: int64(a.integer("length", 0))}
	read := newSink()
	for chunk, err := range s.workspace(a).Offload().Chunks(ctx, a.str("path", ""), options) {
		if err != nil {
			return nil, err
		}
		_, _ = read.Write(chunk) // never fails
	}
	return read.result(), nil
}

func readMessages(ctx context.Context, s *session, a args) (any, error) {
	options := workspaced.MessagesOptions{Skip: int64(a.integer("skip", 0)), Limit: int64(a.integer("limit", 0))}
	var found []workspaced.Message
	for message, err := range s.workspace(a).Offload().Messages(ctx, a.str("path", ""), options) {
		if err != nil {
			return nil, err
		}
		found = append(found, message)
	}
	return object{"messages": messagesOf(found)}, nil
}
