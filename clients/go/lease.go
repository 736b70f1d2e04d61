package workspaced

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

const (
	releaseTimeout = 5 * time.Second
	usualLease     = time.Minute
	longestLease   = time.Hour
)

// AllocationPolicy says who shares a workspace that is acquired.
type AllocationPolicy string

// The policies. AllocationUnspecified is the template's, else PerSession.
const (
	AllocationUnspecified AllocationPolicy = ""
	PerUser               AllocationPolicy = "per_user"
	PerAgent              AllocationPolicy = "per_agent"
	PerSession            AllocationPolicy = "per_session"
)

// AcquireOptions say whose workspace is meant, and how it is made when it is missing.
type AcquireOptions struct {
	Policy AllocationPolicy
	// UserID is always needed, AgentID with PerAgent and PerSession, SessionID with PerSession.
	UserID, AgentID, SessionID string
	// Template names one of the server's configuration. Empty: "default". The fields below override it.
	Template  string
	Backend   Backend
	Image     string
	Env       map[string]string
	Resources Resources
	// LeaseDuration is how long the workspace is kept when this program stops to renew its lease. 0: a minute; at most an hour.
	LeaseDuration time.Duration
}

func (o AcquireOptions) request() (*pb.AcquireWorkspaceRequest, error) {
	policy, err := enumNumber[pb.AllocationPolicy](string(o.Policy), "ALLOCATION_POLICY_")
	if err != nil {
		return nil, err
	}
	spec, err := InitializeOptions{Backend: o.Backend, Image: o.Image, Env: o.Env, Resources: o.Resources}.spec()
	if err != nil {
		return nil, err
	}
	return &pb.AcquireWorkspaceRequest{
		Policy: policy, UserId: o.UserID, AgentId: optionalID(o.AgentID), SessionId: optionalID(o.SessionID),
		Template: o.Template, LeaseDuration: optionalDuration(o.LeaseDuration), Spec: spec,
	}, nil
}

// Lease keeps a workspace from being closed for idleness. It is renewed until [Lease.Release] or [Client.Close]; then it lasts
// until its time.
//
// When a lease ran out, because this program or the server slept longer than it lasts, the workspace is acquired again.
type Lease struct {
	client    *Client
	workspace *Workspace
	request   *pb.AcquireWorkspaceRequest
	created   bool
	every     time.Duration
	stop      context.CancelFunc
	lost      chan struct{}
	stopped   chan struct{}

	mu       sync.Mutex
	lease    *pb.Lease
	err      error
	released bool
}

// Acquire gives the workspace that belongs to a user, an agent or a session, made when it is missing, under a lease that is renewed
// as long as this program runs. The same ids give the same workspace.
//
// It is repeated when a connection breaks, and fails as [Client.Initialize] does. The deadline of the context, or half an hour,
// bounds it; the end of the context after that does not concern the lease.
func (c *Client) Acquire(ctx context.Context, options AcquireOptions) (*Lease, error) {
	request, err := options.request()
	if err != nil {
		return nil, err
	}
	response, err := unary(ctx, c, c.lifecycle.AcquireWorkspace, request, longTimeout)
	if err != nil {
		return nil, err
	}
	renewing, stop := c.lasting(context.Background())
	lease := &Lease{
		client:    c,
		workspace: c.Workspace(response.GetWorkspace().GetWorkspaceId()),
		request:   request,
		created:   response.GetCreated(),
		every:     usualLease / 3,
		stop:      stop,
		lost:      make(chan struct{}),
		stopped:   make(chan struct{}),
		lease:     response.GetLease(),
	}
	if options.LeaseDuration > 0 {
		lease.every = min(options.LeaseDuration, longestLease) / 3
	}
	if !c.companion(func() { lease.renew(renewing) }) {
		stop()
		return nil, errClosed()
	}
	return lease, nil
}

// Workspace is the workspace. [Workspace.As] makes it that of an agent and a session, which may be others than those of AcquireOptions.
func (l *Lease) Workspace() *Workspace { return l.workspace }

// Created tells whether Acquire made the workspace.
func (l *Lease) Created() bool { return l.created }

// ID is the lease, as the server knows it now.
func (l *Lease) ID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease.GetLeaseId()
}

// ExpireTime is when the lease ends unless it is renewed, by the server's clock.
func (l *Lease) ExpireTime() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return when(l.lease.GetExpireTime())
}

// Lost is closed when the lease cannot be renewed any more and the workspace cannot be had again, or is another one: Err says why.
// Broken connections are no reason: renewal goes on until it succeeds.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err is why the latest renewal failed; nil when it did not.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Release gives the lease back; then the workspace's idle time begins. Idempotent. What cannot be told to a server that is not
// there ends by itself, when the lease does: that is a warning and no error.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	released := l.released
	l.released = true
	l.mu.Unlock()
	if released {
		return nil
	}
	l.stop()
	<-l.stopped
	err := l.client.release(ctx, l.ID())
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrDeadlineExceeded) {
		l.client.warn(fmt.Sprintf("lease of %s not released: %v", l.workspace.ID, err))
		return nil
	}
	return err
}

func (c *Client) release(ctx context.Context, leaseID string) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	_, err := once(ctx, c, c.lifecycle.ReleaseWorkspace, &pb.ReleaseWorkspaceRequest{LeaseId: leaseID}, 0)
	return err
}

func (l *Lease) renew(ctx context.Context) {
	defer close(l.stopped)
	defer l.stop()
	var delays backoff
	wait := l.every
	for sleep(ctx, wait) {
		lost, err := l.renewOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()
		switch {
		case err == nil:
			delays.reset()
			wait = l.every
		case lost:
			l.client.warn(fmt.Sprintf("lease of %s lost: %v", l.workspace.ID, err))
			close(l.lost)
			return
		default:
			l.client.warn(fmt.Sprintf("lease of %s not renewed: %v", l.workspace.ID, err))
			wait = delays.next(retryAfter(err))
		}
	}
}

func (l *Lease) renewOnce(ctx context.Context) (lost bool, err error) {
	c := l.client
	request := &pb.RenewLeaseRequest{LeaseId: l.ID()}
	renewed, err := unary(ctx, c, c.lifecycle.RenewLease, request, c.timeout)
	if err == nil {
		l.replace(renewed.GetLease())
	}
	if !errors.Is(err, ErrLeaseNotFound) {
		return false, err
	}
	again, err := unary(ctx, c, c.lifecycle.AcquireWorkspace, l.request, c.timeout)
	if err != nil {
		return final(err), err
	}
	if id := again.GetWorkspace().GetWorkspaceId(); id != l.workspace.ID {
		// It expires by itself: nobody here wanted it.
		return true, &Error{Code: codes.NotFound, Reason: "WORKSPACE_NOT_FOUND", Message: "the workspace was replaced by " + id}
	}
	l.replace(again.GetLease())
	return false, nil
}

func (l *Lease) replace(lease *pb.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease = lease
}

// final tells whether acquiring again would fail for the same reason.
func final(err error) bool {
	for _, class := range []error{
		ErrInvalidArgument, ErrNotFound, ErrAlreadyExists, ErrPermissionDenied, ErrFailedPrecondition, ErrUnimplemented,
	} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// sleep waits; false when the context ends first.
func sleep(ctx context.Context, duration time.Duration) bool {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
