package workspaced

import (
	"strings"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// ToolEvent is what a tool call reports while it runs: [ToolProcess], [ToolText], [ToolData], [ToolProgress] or
// [ToolLog], and at its end the [*ToolResult]. Use a type switch; later versions may add kinds.
type ToolEvent interface{ toolEvent() }

// ToolProcess names the process that the call runs as.
type ToolProcess struct{ ProcessID, CallID string }

// ToolText is more text of the output, for display: the result holds what a model should see.
type ToolText struct{ Delta string }

// ToolData is a data block of the output. It is in the result too.
type ToolData struct{ Block DataBlock }

// ToolProgress is how far the tool is, in its own unit; Total is 0 when it is unknown.
type ToolProgress struct {
	Progress, Total float64
	Message         string
}

// ToolLog is a log line of the tool: Level is debug, info, notice, warning, error, critical, alert or emergency, Data
// any JSON value.
type ToolLog struct {
	Level, Logger string
	Data          any
}

// ToolResult is what a tool answered.
type ToolResult struct {
	Name   string
	CallID string
	Blocks []Block
	// IsError: the tool ran and reports an error, written in Blocks for a model to act on.
	IsError bool
	State   ToolResultState
	// Structured is the output as a JSON object; nil for a tool that gives none.
	Structured map[string]any
	// Offloaded is the path of the whole text, when Blocks hold a part of it because of [OffloadOverBytes].
	Offloaded string
	// BackgroundProcessID is the process that goes on after this result.
	BackgroundProcessID string
}

func (ToolProcess) toolEvent()  {}
func (ToolText) toolEvent()     {}
func (ToolData) toolEvent()     {}
func (ToolProgress) toolEvent() {}
func (ToolLog) toolEvent()      {}
func (*ToolResult) toolEvent()  {}

// Text is all text of the result; blocks are separated by line feeds.
func (r *ToolResult) Text() string {
	var parts []string
	for _, block := range r.Blocks {
		if text, ok := block.(TextBlock); ok {
			parts = append(parts, text.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// Block is the result as a block of a message, and for [Offload.ToolResult].
func (r *ToolResult) Block() ToolResultBlock {
	return ToolResultBlock{ID: r.CallID, Name: r.Name, Output: r.Blocks, State: r.State}
}

func toolResultOf(name string, result *pb.ToolResult) *ToolResult {
	made := &ToolResult{
		Name:                name,
		CallID:              result.GetCallId(),
		Blocks:              blocksOf(result.GetContent()),
		IsError:             result.GetIsError(),
		State:               toolResultStateOf(result.GetState()),
		Offloaded:           result.GetOffloaded().GetPath(),
		BackgroundProcessID: result.GetBackgroundProcessId(),
	}
	if result.Structured != nil {
		made.Structured = result.Structured.AsMap()
	}
	return made
}

// toolEventOf is the event for a message; nil for one of a kind that this version does not know.
func toolEventOf(name string, response *pb.CallToolResponse) ToolEvent {
	switch event := response.GetEvent().(type) {
	case *pb.CallToolResponse_Process:
		return ToolProcess{ProcessID: event.Process.GetProcessId(), CallID: event.Process.GetCallId()}
	case *pb.CallToolResponse_Text:
		return ToolText{Delta: event.Text.GetDelta()}
	case *pb.CallToolResponse_Data:
		return ToolData{Block: dataBlockOf(event.Data, "")}
	case *pb.CallToolResponse_Progress:
		progress := event.Progress
		return ToolProgress{progress.GetProgress(), progress.GetTotal(), progress.GetMessage()}
	case *pb.CallToolResponse_Log:
		return ToolLog{logLevelOf(event.Log.GetLevel()), event.Log.GetLogger(), event.Log.GetData().AsInterface()}
	case *pb.CallToolResponse_Result:
		return toolResultOf(name, event.Result)
	default:
		return nil
	}
}

func logLevelOf(level pb.ToolLogLevel) string {
	name, known := pb.ToolLogLevel_name[int32(level)]
	if !known || level == pb.ToolLogLevel_TOOL_LOG_LEVEL_UNSPECIFIED {
		return "info"
	}
	return strings.ToLower(strings.TrimPrefix(name, "TOOL_LOG_LEVEL_"))
}
