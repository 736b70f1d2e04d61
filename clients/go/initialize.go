package workspaced

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// Resources limit what a workspace may use; 0 is the backend's default.
type Resources struct {
	CPUMillis   uint32
	MemoryBytes uint64
	DiskBytes   uint64
	PIDs        uint32
	GPUs        uint32
}

// Network says what a workspace may reach. Its zero value is what the backend's configuration allows.
type Network struct {
	// None leaves no network but loopback.
	None bool
	// Allow are the host names and CIDR blocks to allow, and no other.
	Allow []string
}

// BackendOptions are the options of one backend: a *workspacedv1.LocalOptions, *workspacedv1.DockerOptions and so on.
type BackendOptions any

// InitializeOptions are what is wanted of a workspace. All fields are optional.
type InitializeOptions struct {
	// ID names the workspace; one that exists is attached to. Empty: generated.
	ID      string
	Backend Backend
	// Image is a container's, or the provider's template.
	Image string
	// Template names one of the server's configuration; what is given beside it overrides it.
	Template  string
	Env       map[string]string
	Resources Resources
	Network   Network
	User      string
	Workdir   string
	// Persistent says whether files outlive Close. nil: as the backend can.
	Persistent *bool
	Labels     map[string]string
	// IdleTimeout closes it when it was not used for so long. 0: the server's default.
	IdleTimeout   time.Duration
	InstallPython bool
	SeedSkills    []string
	DefaultMCPs   []MCPServer
	Instructions  string
	// BackendOptions are for the backend that they are named after.
	BackendOptions BackendOptions
	// RequestID makes a creation without an ID idempotent for a day. Empty: generated.
	RequestID string
	// NoWait answers at once with state INITIALIZING; Client.Watch tells the rest.
	NoWait bool
	// OnProgress is called with each change while the workspace is being made ready, by one goroutine, and not after
	// Initialize has returned.
	OnProgress func(WorkspaceInfo)
}

// Initialize creates a workspace, or re-attaches to the one with the ID, and waits until it is READY: half an hour unless the
// context has a deadline, since an image may be pulled.
//
// Idempotent by ID, else by RequestID; it is repeated when a connection breaks. Fails with [ErrSpecMismatch],
// [ErrBackendUnavailable], [ErrImageNotFound], [ErrGuestPythonMissing], [ErrQuotaExceeded] and [ErrInvalidArgument]. After an
// error, and after a cancellation nobody else waits, nothing that this call made is left.
func (c *Client) Initialize(ctx context.Context, options InitializeOptions) (*Workspace, error) {
	spec, err := options.spec()
	if err != nil {
		return nil, err
	}
	id := options.ID
	if options.OnProgress != nil {
		if id == "" {
			id = newID() // what is to be watched needs a name
		}
		defer c.report(ctx, id, options.OnProgress)()
	}
	request := &pb.InitializeWorkspaceRequest{
		WorkspaceId: id,
		Spec:        spec,
		Labels:      options.Labels,
		RequestId:   options.RequestID,
		NoWait:      options.NoWait,
	}
	if request.RequestId == "" {
		request.RequestId = newID()
	}
	response, err := unary(ctx, c, c.lifecycle.InitializeWorkspace, request, longTimeout)
	if err != nil {
		return nil, err
	}
	return c.Workspace(response.GetWorkspace().GetWorkspaceId()), nil
}

// report calls on with every change, until the returned function has returned.
func (c *Client) report(ctx context.Context, id string, on func(WorkspaceInfo)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for info, err := range c.Watch(ctx, Filter{IDs: []string{id}}) {
			if err != nil {
				return // Initialize tells what is wrong
			}
			on(info)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// spec is nil when nothing is asked for: an existing workspace is then taken as it is.
func (o InitializeOptions) spec() (*pb.WorkspaceSpec, error) {
	backend, err := enumNumber[pb.Backend](string(o.Backend), "BACKEND_")
	if err != nil {
		return nil, err
	}
	spec := &pb.WorkspaceSpec{
		Backend:       backend,
		Image:         o.Image,
		Template:      o.Template,
		Env:           o.Env,
		User:          o.User,
		Workdir:       o.Workdir,
		IdleTimeout:   optionalDuration(o.IdleTimeout),
		InstallPython: o.InstallPython,
		SeedSkills:    o.SeedSkills,
		Instructions:  o.Instructions,
	}
	for _, server := range o.DefaultMCPs {
		declared, err := server.proto()
		if err != nil {
			return nil, err
		}
		spec.DefaultMcps = append(spec.DefaultMcps, declared)
	}
	if o.Resources != (Resources{}) {
		r := o.Resources
		spec.Resources = &pb.Resources{
			CpuMillis: r.CPUMillis, MemoryBytes: r.MemoryBytes, DiskBytes: r.DiskBytes, Pids: r.PIDs, Gpus: r.GPUs,
		}
	}
	switch {
	case o.Network.None && len(o.Network.Allow) > 0:
		return nil, invalidArgument("Network has None and Allow: one of them")
	case o.Network.None:
		spec.Network = &pb.Network{Mode: pb.Network_MODE_NONE}
	case o.Network.Allow != nil:
		spec.Network = &pb.Network{Mode: pb.Network_MODE_ALLOW_LIST, Allow: slices.Clone(o.Network.Allow)}
	}
	if o.Persistent != nil {
		spec.Persistence = pb.Persistence_PERSISTENCE_EPHEMERAL
		if *o.Persistent {
			spec.Persistence = pb.Persistence_PERSISTENCE_PERSISTENT
		}
	}
	if err := setBackendOptions(spec, o.BackendOptions); err != nil {
		return nil, err
	}
	if proto.Size(spec) == 0 {
		return nil, nil
	}
	return spec, nil
}

func setBackendOptions(spec *pb.WorkspaceSpec, options BackendOptions) error {
	var backend pb.Backend
	switch options := options.(type) {
	case nil:
		return nil
	case *pb.LocalOptions:
		backend, spec.BackendOptions = pb.Backend_BACKEND_LOCAL, &pb.WorkspaceSpec_Local{Local: options}
	case *pb.DockerOptions:
		backend, spec.BackendOptions = pb.Backend_BACKEND_DOCKER, &pb.WorkspaceSpec_Docker{Docker: options}
	case *pb.E2BOptions:
		backend, spec.BackendOptions = pb.Backend_BACKEND_E2B, &pb.WorkspaceSpec_E2B{E2B: options}
	case *pb.DaytonaOptions:
		backend, spec.BackendOptions = pb.Backend_BACKEND_DAYTONA, &pb.WorkspaceSpec_Daytona{Daytona: options}
	case *pb.KubernetesOptions:
		backend, spec.BackendOptions = pb.Backend_BACKEND_KUBERNETES, &pb.WorkspaceSpec_Kubernetes{Kubernetes: options}
	case *pb.OpensandboxOptions:
		backend, spec.BackendOptions = pb.Backend_BACKEND_OPENSANDBOX, &pb.WorkspaceSpec_Opensandbox{Opensandbox: options}
	default:
		return invalidArgument("BackendOptions are a pointer to the options of a backend in workspacedv1")
	}
	if spec.Backend == pb.Backend_BACKEND_UNSPECIFIED {
		spec.Backend = backend
	}
	if spec.Backend != backend {
		return invalidArgument("BackendOptions are of another backend than Backend")
	}
	return nil
}

// newID is an id for a process or a request that nobody else has.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
