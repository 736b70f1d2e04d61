package main

import (
	"context"

	"github.com/workspaced/workspaced/clients/go"
)

func init() {
	register(map[string]operation{
		"acquire":    acquire,
		"lease_info": leaseInfo,
		"release":    release,
	})
}

func acquire(ctx context.Context, s *session, a args) (any, error) {
	lease, err := s.client(a).Acquire(ctx, workspaced.AcquireOptions{
		Policy:        workspaced.AllocationPolicy(a.str("policy", "")),
		UserID:        a.str("user_id", ""),
		AgentID:       a.str("agent_id", ""),
		SessionID:     a.str("session_id", ""),
		Template:      a.str("template", ""),
		Backend:       workspaced.Backend(a.str("backend", "")),
		LeaseDuration: a.seconds("lease_duration"),
	})
	if err != nil {
		return nil, err
	}
	s.put(a, "lease", lease)
	s.store(a.str("ws", "ws"), lease.Workspace())
	return object{"workspace_id": lease.Workspace().ID, "lease_id": lease.ID(), "created": lease.Created()}, nil
}

func leaseInfo(_ context.Context, s *session, a args) (any, error) {
	lease := get[*workspaced.Lease](s, a, "lease")
	return object{"lease_id": lease.ID(), "expire_time": float64(lease.ExpireTime().UnixMilli()) / 1000}, nil
}

func release(ctx context.Context, s *session, a args) (any, error) {
	return object{}, get[*workspaced.Lease](s, a, "lease").Release(ctx)
}
