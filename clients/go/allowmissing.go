package workspaced

import pb "github.com/workspaced/workspaced/clients/go/workspacedv1"

type (
	// RemoveMCPOption is an option of [MCPs.Remove].
	RemoveMCPOption interface{ applyRemoveMCP(*pb.RemoveMcpRequest) }
	// RemoveSkillOption is an option of [Skills.Remove].
	RemoveSkillOption interface{ applyRemoveSkill(*pb.RemoveSkillRequest) }
)

type allowMissingOption struct{}

func (allowMissingOption) applyRemove(r *pb.RemoveFileRequest)       { r.AllowMissing = true }
func (allowMissingOption) applyRemoveMCP(r *pb.RemoveMcpRequest)     { r.AllowMissing = true }
func (allowMissingOption) applyRemoveSkill(r *pb.RemoveSkillRequest) { r.AllowMissing = true }

// AllowMissing makes it no error that there is nothing to remove, and so the removal one that can be repeated.
func AllowMissing() interface {
	RemoveOption
	RemoveMCPOption
	RemoveSkillOption
} {
	return allowMissingOption{}
}
