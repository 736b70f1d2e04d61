package workspaced

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// MCPState is what an instance of an MCP server is doing.
type MCPState string

// The states of an MCP server.
const (
	// MCPIdle: declared and not started, or evicted as the least recently used.
	MCPIdle       MCPState = "idle"
	MCPConnecting MCPState = "connecting"
	MCPReady      MCPState = "ready"
	// MCPFailed: see MCPInfo.Error and MCPInfo.NextRetryTime.
	MCPFailed MCPState = "failed"
)

// MCPServer declares an MCP server: a program of the workspace (Command) or a server over HTTP (URL).
type MCPServer struct {
	// Name is 1 to 64 characters of [A-Za-z0-9_.-], not starting with a dot.
	Name string

	// Command is the program and its arguments. It runs in the workspace and speaks over its standard streams.
	Command []string
	// Env is added to the workspace's environment, for Command. The values are never read back.
	Env map[string]string
	// Dir is the working directory of Command; relative paths start at the workspace's.
	Dir string

	// URL is dialled from inside the workspace.
	URL string
	// Headers are sent with every request to URL. The values are never read back.
	Headers map[string]string
	// SSE speaks HTTP with server-sent events, the older transport, instead of Streamable HTTP.
	SSE bool

	// EnabledTools, when not empty, are the only ones of the server's tools that are listed and callable.
	EnabledTools []string
	// DisabledTools are neither listed nor callable; they win over EnabledTools.
	DisabledTools []string
	// CallTimeout bounds one request to the server; 0: only the caller's deadline does.
	CallTimeout time.Duration
	// Stateless: the server keeps nothing between calls.
	Stateless bool
}

func (s MCPServer) proto() (*pb.Mcp, error) {
	made := &pb.Mcp{
		Name: s.Name, EnabledTools: s.EnabledTools, DisabledTools: s.DisabledTools, Stateless: s.Stateless,
	}
	if s.CallTimeout != 0 {
		made.CallTimeout = durationpb.New(s.CallTimeout)
	}
	switch {
	case (len(s.Command) == 0) == (s.URL == ""):
		return nil, invalidArgument("an MCP server is reached either by Command or by URL")
	case s.URL == "":
		if len(s.Headers) > 0 || s.SSE {
			return nil, invalidArgument("Headers and SSE belong to URL")
		}
		stdio := &pb.McpStdio{Command: s.Command[0], Args: s.Command[1:], Env: s.Env, Cwd: s.Dir}
		made.Transport = &pb.Mcp_Stdio{Stdio: stdio}
	default:
		if len(s.Env) > 0 || s.Dir != "" {
			return nil, invalidArgument("Env and Dir belong to Command")
		}
		http := &pb.McpHttp{Url: s.URL, Headers: s.Headers, Kind: pb.McpHttpKind_MCP_HTTP_KIND_STREAMABLE}
		if s.SSE {
			http.Kind = pb.McpHttpKind_MCP_HTTP_KIND_SSE
		}
		made.Transport = &pb.Mcp_Http{Http: http}
	}
	return made, nil
}

func mcpServerOf(mcp *pb.Mcp) MCPServer {
	made := MCPServer{
		Name:          mcp.GetName(),
		EnabledTools:  mcp.GetEnabledTools(),
		DisabledTools: mcp.GetDisabledTools(),
		CallTimeout:   mcp.GetCallTimeout().AsDuration(),
		Stateless:     mcp.GetStateless(),
	}
	if stdio := mcp.GetStdio(); stdio != nil {
		made.Command = append([]string{stdio.GetCommand()}, stdio.GetArgs()...)
		made.Env, made.Dir = stdio.GetEnv(), stdio.GetCwd()
	}
	if http := mcp.GetHttp(); http != nil {
		made.URL, made.Headers = http.GetUrl(), http.GetHeaders()
		made.SSE = http.GetKind() == pb.McpHttpKind_MCP_HTTP_KIND_SSE
	}
	return made
}

// MCPError says why an MCP server cannot be used. It is an error, and travels inside successful answers: one dead server
// does not hide the others.
type MCPError struct {
	// MCP is the server's name.
	MCP     string
	Reason  string
	Message string
	// StderrTail is the end of what a program wrote to standard error, at most 4 KiB.
	StderrTail string
	// Attempts in a row have failed.
	Attempts int
	Time     time.Time
}

// Error names the server, the reason and the message.
func (e *MCPError) Error() string { return "MCP server " + e.MCP + ": " + e.Reason + ": " + e.Message }

func mcpErrorOf(e *pb.McpError) *MCPError {
	if e == nil {
		return nil
	}
	return &MCPError{
		e.GetMcp(), e.GetReason(), e.GetMessage(), e.GetStderrTail(), int(e.GetAttempts()), when(e.GetTime()),
	}
}

// MCPInfo is a declared MCP server and its instance.
type MCPInfo struct {
	// Server is the declaration, with secrets redacted.
	Server MCPServer
	State  MCPState
	// Error is set when State is MCPFailed.
	Error *MCPError
	// Inherited: it is a default of the workspace.
	Inherited bool
	// ServerName, ServerVersion and Instructions are what the server said of itself.
	ServerName, ServerVersion, Instructions string
	ToolCount                               int
	HasResources, HasPrompts                bool
	// ProcessID is the process of a program while it lives.
	ProcessID     string
	LastUsedTime  time.Time
	NextRetryTime time.Time
}

func mcpInfoOf(status *pb.McpStatus) MCPInfo {
	return MCPInfo{
		Server:        mcpServerOf(status.GetMcp()),
		State:         mcpStateOf(status.GetState()),
		Error:         mcpErrorOf(status.GetError()),
		Inherited:     status.GetInherited(),
		ServerName:    status.GetServerName(),
		ServerVersion: status.GetServerVersion(),
		Instructions:  status.GetInstructions(),
		ToolCount:     int(status.GetToolCount()),
		HasResources:  status.GetHasResources(),
		HasPrompts:    status.GetHasPrompts(),
		ProcessID:     status.GetProcessId(),
		LastUsedTime:  when(status.GetLastUsedTime()),
		NextRetryTime: when(status.GetNextRetryTime()),
	}
}

func mcpStateOf(state pb.McpState) MCPState {
	switch state {
	case pb.McpState_MCP_STATE_CONNECTING:
		return MCPConnecting
	case pb.McpState_MCP_STATE_READY:
		return MCPReady
	case pb.McpState_MCP_STATE_FAILED:
		return MCPFailed
	default:
		return MCPIdle
	}
}

// MCPResource is a resource of an MCP server, or with URITemplate (RFC 6570) a family of them.
type MCPResource struct {
	MCP         string
	URI         string
	URITemplate string
	Name        string
	Title       string
	Description string
	MediaType   string
	// Size in bytes; -1 when it is unknown.
	Size int64
}

func mcpResourceOf(item *pb.McpResource) MCPResource {
	made := MCPResource{
		MCP: item.GetMcp(), URI: item.GetUri(), URITemplate: item.GetUriTemplate(), Name: item.GetName(),
		Title: item.GetTitle(), Description: item.GetDescription(), MediaType: item.GetMediaType(), Size: -1,
	}
	if item.SizeBytes != nil {
		made.Size = int64(item.GetSizeBytes())
	}
	return made
}

// ResourceContent is a part of a resource: Text, or Data when it is not nil, or Path when it was stored in the workspace.
type ResourceContent struct {
	URI       string
	MediaType string
	Text      string
	Data      []byte
	Path      string
}

func resourceContentOf(part *pb.McpResourceContent) ResourceContent {
	made := ResourceContent{
		URI: part.GetUri(), MediaType: part.GetMediaType(), Text: part.GetText(), Path: part.GetOffloaded().GetPath(),
	}
	if data, ok := part.GetContent().(*pb.McpResourceContent_Data); ok {
		made.Data = append([]byte{}, data.Data...)
	}
	return made
}

// MCPPrompt is a prompt of an MCP server.
type MCPPrompt struct {
	MCP         string
	Name        string
	Title       string
	Description string
	Arguments   []MCPPromptArgument
}

// MCPPromptArgument is one argument of a prompt.
type MCPPromptArgument struct {
	Name        string
	Description string
	Required    bool
}

func mcpPromptOf(item *pb.McpPrompt) MCPPrompt {
	made := MCPPrompt{
		MCP: item.GetMcp(), Name: item.GetName(), Title: item.GetTitle(), Description: item.GetDescription(),
	}
	for _, argument := range item.GetArguments() {
		made.Arguments = append(made.Arguments, MCPPromptArgument{
			argument.GetName(), argument.GetDescription(), argument.GetRequired(),
		})
	}
	return made
}
