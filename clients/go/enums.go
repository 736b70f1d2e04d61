package workspaced

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// Backend is where a workspace runs.
type Backend string

// The backends. BackendUnspecified is the server's default; also a backend that this version does not know.
const (
	BackendUnspecified Backend = ""
	BackendLocal       Backend = "local"
	BackendDocker      Backend = "docker"
	BackendE2B         Backend = "e2b"
	BackendDaytona     Backend = "daytona"
	BackendKubernetes  Backend = "kubernetes"
	BackendOpenSandbox Backend = "opensandbox"
)

// WorkspaceState is where a workspace is in its life.
type WorkspaceState string

// The states of a workspace. StateUnspecified is one that this version does not know.
const (
	StateUnspecified  WorkspaceState = "UNSPECIFIED"
	StateInitializing WorkspaceState = "INITIALIZING"
	StateReady        WorkspaceState = "READY"
	StateClosing      WorkspaceState = "CLOSING"
	StateClosed       WorkspaceState = "CLOSED"
	StateDegraded     WorkspaceState = "DEGRADED"
	StateDeleting     WorkspaceState = "DELETING"
	StateDeleted      WorkspaceState = "DELETED"
	StateFailed       WorkspaceState = "FAILED"
)

// Phase is what is being done while a workspace is [StateInitializing].
type Phase string

// The phases. PhaseUnspecified is one that this version does not know.
const (
	PhaseUnspecified      Phase = "UNSPECIFIED"
	PhaseQueued           Phase = "QUEUED"
	PhasePullingImage     Phase = "PULLING_IMAGE"
	PhaseCreating         Phase = "CREATING"
	PhaseStarting         Phase = "STARTING"
	PhaseConnecting       Phase = "CONNECTING"
	PhaseInstallingPython Phase = "INSTALLING_PYTHON"
)

// ExitReason is why a process ended.
type ExitReason string

// The reasons of an end. ExitUnspecified is one that this version does not know.
const (
	ExitUnspecified      ExitReason = "UNSPECIFIED"
	ExitExited           ExitReason = "EXITED"
	ExitSignaled         ExitReason = "SIGNALED"
	ExitTimedOut         ExitReason = "TIMED_OUT"
	ExitOOMKilled        ExitReason = "OOM_KILLED"
	ExitCancelled        ExitReason = "CANCELLED"
	ExitWorkspaceStopped ExitReason = "WORKSPACE_STOPPED"
	ExitLost             ExitReason = "LOST"
)

// ProcessState is whether a process runs.
type ProcessState string

// The states of a process. ProcessUnspecified stands for all of them in a filter.
const (
	ProcessUnspecified ProcessState = "UNSPECIFIED"
	ProcessRunning     ProcessState = "RUNNING"
	ProcessExited      ProcessState = "EXITED"
)

// Stream is which output of a process bytes belong to.
type Stream string

// The streams. A pseudo-terminal has one for all output.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
	PTY    Stream = "pty"
)

// protoEnum is a generated enumeration.
type protoEnum interface {
	~int32
	Descriptor() protoreflect.EnumDescriptor
}

// enumName is the name of a value without its prefix; "UNSPECIFIED" for one of a newer server.
func enumName[E protoEnum](value E, prefix string) string {
	found := value.Descriptor().Values().ByNumber(protoreflect.EnumNumber(value))
	if found == nil {
		return "UNSPECIFIED"
	}
	return strings.TrimPrefix(string(found.Name()), prefix)
}

// enumNumber is the value of a name in any case, which may be empty or come without its prefix.
func enumNumber[E protoEnum](name, prefix string) (E, error) {
	var zero E
	if name == "" {
		return zero, nil
	}
	found := zero.Descriptor().Values().ByName(protoreflect.Name(prefix + strings.ToUpper(name)))
	if found == nil {
		return zero, invalidArgument(name + " is no " + string(zero.Descriptor().Name()))
	}
	return E(found.Number()), nil
}

func backendName(value pb.Backend) Backend {
	if name := strings.ToLower(enumName(value, "BACKEND_")); name != "unspecified" {
		return Backend(name)
	}
	return BackendUnspecified
}
