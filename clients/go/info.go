package workspaced

import (
	"maps"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// timeOf is a time; the zero time for one that is not set.
func when(stamp *timestamppb.Timestamp) time.Time {
	if stamp.GetSeconds() == 0 && stamp.GetNanos() == 0 {
		return time.Time{}
	}
	return stamp.AsTime()
}

// Progress is how far a workspace in state INITIALIZING is.
type Progress struct {
	Phase Phase
	// Fraction is the part of the phase that is done, 0 to 1; negative when unknown.
	Fraction float64
	Message  string
}

// WorkspaceInfo is a workspace as the server knows it. Times that are not known are zero.
type WorkspaceInfo struct {
	ID      string
	Backend Backend
	State   WorkspaceState
	// StateReason says why it is in this state, for people; set with DEGRADED and FAILED.
	StateReason string
	Image       string
	// Workdir is the absolute path of its directory, as its processes see it.
	Workdir      string
	Labels       map[string]string
	Owner        string
	CreateTime   time.Time
	UpdateTime   time.Time
	LastUsedTime time.Time
	ExpireTime   time.Time // when it will be closed for idleness
	Progress     *Progress
	Revision     uint64            // grows with every change
	Spec         *pb.WorkspaceSpec // its whole spec, with secrets redacted
}

func workspaceInfo(w *pb.Workspace) WorkspaceInfo {
	info := WorkspaceInfo{
		ID:           w.GetWorkspaceId(),
		Backend:      backendName(w.GetBackend()),
		State:        WorkspaceState(enumName(w.GetState(), "WORKSPACE_STATE_")),
		StateReason:  w.GetStateReason(),
		Image:        w.GetSpec().GetImage(),
		Workdir:      w.GetWorkdir(),
		Labels:       maps.Clone(w.GetLabels()),
		Owner:        w.GetOwner(),
		CreateTime:   when(w.GetCreateTime()),
		UpdateTime:   when(w.GetUpdateTime()),
		LastUsedTime: when(w.GetLastUsedTime()),
		ExpireTime:   when(w.GetExpireTime()),
		Revision:     w.GetRevision(),
		Spec:         w.GetSpec(),
	}
	if progress := w.GetProgress(); progress != nil {
		info.Progress = &Progress{
			Phase:    Phase(enumName(progress.GetPhase(), "PHASE_")),
			Fraction: progress.GetFraction(),
			Message:  progress.GetMessage(),
		}
	}
	return info
}
