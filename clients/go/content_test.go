package workspaced

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

func TestBlocksComeBackAsTheyWere(t *testing.T) {
	blocks := []Block{
		TextBlock{ID: "1", Text: "text"},
		ThinkingBlock{ID: "2", Thinking: "hm", Signature: "sig"},
		DataBlock{ID: "3", MediaType: "image/png", Data: []byte{1}, Name: "n"},
		DataBlock{MediaType: "text/plain", Data: []byte{}},
		DataBlock{ID: "4", MediaType: "image/png", URL: "https://example.com/a.png"},
		ToolCallBlock{ID: "c", Name: "t", Input: map[string]any{"a": []any{1.5, nil, true}}, RawInput: "{"},
		ToolResultBlock{ID: "c", Name: "t", Output: []Block{TextBlock{Text: "x"}}, State: ToolDenied},
		HintBlock{ID: "5", Content: []Block{TextBlock{Text: "y"}}, Source: "s"},
	}
	made, err := blocksToProto(blocks)
	if err != nil {
		t.Fatal(err)
	}
	if got := blocksOf(made); !reflect.DeepEqual(got, blocks) {
		t.Errorf("got %+v", got)
	}
	message := Message{
		ID: "m", Role: RoleAssistant, Name: "n", Content: blocks, Metadata: map[string]any{"k": "v"},
		CreateTime: time.Unix(1700000000, 5).UTC(),
	}
	converted, err := message.proto()
	if err != nil {
		t.Fatal(err)
	}
	if got := messageOf(converted); !reflect.DeepEqual(got, message) {
		t.Errorf("got %+v", got)
	}
}

func TestABlockOfANewerServerIsSentBackAsItCame(t *testing.T) {
	encoded := protowire.AppendTag(nil, 1, protowire.BytesType)
	encoded = protowire.AppendString(encoded, "id")
	encoded = protowire.AppendTag(encoded, 99, protowire.BytesType)
	encoded = protowire.AppendString(encoded, "a hologram")
	var received pb.ContentBlock
	if err := proto.Unmarshal(encoded, &received); err != nil {
		t.Fatal(err)
	}
	block, ok := blockOf(&received).(UnknownBlock)
	if !ok || block.ID != "id" {
		t.Fatalf("got %+v", block)
	}
	made, err := blocksToProto([]Block{block})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := proto.Marshal(made[0]); err != nil || !bytes.Equal(again, encoded) {
		t.Errorf("got %x, %v", again, err)
	}
}

func TestWhatIsNoBlock(t *testing.T) {
	for name, block := range map[string]Block{
		"nil":             nil,
		"data of neither": DataBlock{MediaType: "text/plain"},
		"data of both":    DataBlock{MediaType: "text/plain", Data: []byte{}, URL: "u"},
		"unknown, made":   UnknownBlock{},
		"state":           ToolResultBlock{State: "elated"},
		"nested":          HintBlock{Content: []Block{nil}},
		"input":           ToolCallBlock{Input: map[string]any{"f": func() {}}},
	} {
		if _, err := blocksToProto([]Block{block}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := (Message{Role: "pope"}).proto(); err == nil {
		t.Error("the role is taken")
	}
}

func TestJSONObject(t *testing.T) {
	for name, test := range map[string]struct {
		value any
		want  string
	}{
		"nil":         {nil, `{}`},
		"nil map":     {map[string]any(nil), `{}`},
		"empty":       {json.RawMessage(nil), `{}`},
		"raw":         {json.RawMessage(`{"a": [1, "b"]}`), `{"a":[1,"b"]}`},
		"map":         {map[string]any{"a": 1}, `{"a":1}`},
		"typed slice": {map[string]any{"a": []string{"b"}}, `{"a":["b"]}`},
		"struct": {struct {
			Path string `json:"file_path"`
		}{"f"}, `{"file_path":"f"}`},
	} {
		made, err := jsonObject(test.value)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := json.Marshal(made.AsMap()); err != nil || string(got) != test.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	for _, value := range []any{1, "text", []int{1}, json.RawMessage(`{`), map[string]any{"a": make(chan int)}} {
		if _, err := jsonObject(value); err == nil {
			t.Errorf("%v is taken", value)
		}
	}
}
