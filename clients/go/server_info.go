package workspaced

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// BackendInfo is what the server knows of a backend.
type BackendInfo struct {
	Backend           Backend
	Available         bool
	UnavailableReason string
	Version           string
	// Capabilities are the names of the fields of workspaced.v1.Capabilities that hold, for example "isolation".
	Capabilities []string
}

// Limits are what the server accepts, in bytes but for the page size.
type Limits struct {
	MaxRequestBytes   uint64
	MaxChunkBytes     uint64
	MaxRunOutputBytes uint64
	MaxJournalBytes   uint64
	MaxPageSize       uint32
}

// ServerInfo is what a server is and can do.
type ServerInfo struct {
	Version string
	// APIRevision is the revision of the API that it implements; grows with every addition.
	APIRevision    uint32
	Backends       []BackendInfo
	DefaultBackend Backend
	Limits         Limits
	Principal      string
	// Scopes are what the token allows: "read", "execute", "manage", "admin".
	Scopes    []string
	StartTime time.Time
	// InstanceID changes with each start of the server.
	InstanceID string
	Templates  []string
}

// ServerInfo tells what the server is and can do; with probe every backend is asked anew.
func (c *Client) ServerInfo(ctx context.Context, probe bool) (ServerInfo, error) {
	response, err := unary(ctx, c, c.server.GetServerInfo, &pb.GetServerInfoRequest{Probe: probe}, c.timeout)
	if err != nil {
		return ServerInfo{}, err
	}
	limits := response.GetLimits()
	info := ServerInfo{
		Version:        response.GetVersion(),
		APIRevision:    response.GetApiRevision(),
		DefaultBackend: backendName(response.GetDefaultBackend()),
		Limits: Limits{
			MaxRequestBytes:   limits.GetMaxRequestBytes(),
			MaxChunkBytes:     limits.GetMaxChunkBytes(),
			MaxRunOutputBytes: limits.GetMaxRunOutputBytes(),
			MaxJournalBytes:   limits.GetMaxJournalBytes(),
			MaxPageSize:       limits.GetMaxPageSize(),
		},
		Principal:  response.GetPrincipal(),
		StartTime:  when(response.GetStartTime()),
		InstanceID: response.GetInstanceId(),
		Templates:  response.GetTemplates(),
	}
	for _, scope := range response.GetScopes() {
		if name := enumName(scope, "SCOPE_"); name != "UNSPECIFIED" {
			info.Scopes = append(info.Scopes, strings.ToLower(name))
		}
	}
	for _, backend := range response.GetBackends() {
		info.Backends = append(info.Backends, backendInfo(backend))
	}
	return info, nil
}

func backendInfo(b *pb.BackendInfo) BackendInfo {
	info := BackendInfo{
		Backend:           backendName(b.GetBackend()),
		Available:         b.GetAvailable(),
		UnavailableReason: b.GetUnavailableReason(),
		Version:           b.GetVersion(),
	}
	capabilities := b.GetCapabilities().ProtoReflect()
	fields := capabilities.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.Kind() == protoreflect.BoolKind && capabilities.Get(field).Bool() {
			info.Capabilities = append(info.Capabilities, string(field.Name()))
		}
	}
	return info
}
