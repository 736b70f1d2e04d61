package workspaced

import (
	"context"
	"iter"
	"time"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

const maxPageSize = 1000

// Filter says which workspaces are meant; fields that are set must all match.
type Filter struct {
	// Labels must be present with these values.
	Labels map[string]string
	// States are those of which one must match; Backends and IDs likewise.
	States   []WorkspaceState
	Backends []Backend
	IDs      []string
}

func (f Filter) proto() (*pb.WorkspaceFilter, error) {
	filter := &pb.WorkspaceFilter{Labels: f.Labels, WorkspaceIds: f.IDs}
	for _, state := range f.States {
		number, err := enumNumber[pb.WorkspaceState](string(state), "WORKSPACE_STATE_")
		if err != nil {
			return nil, err
		}
		filter.States = append(filter.States, number)
	}
	for _, backend := range f.Backends {
		number, err := enumNumber[pb.Backend](string(backend), "BACKEND_")
		if err != nil {
			return nil, err
		}
		filter.Backends = append(filter.Backends, number)
	}
	return filter, nil
}

// List gives the caller's workspaces that match, by time of creation.
func (c *Client) List(ctx context.Context, filter Filter) ([]WorkspaceInfo, error) {
	chosen, err := filter.proto()
	if err != nil {
		return nil, err
	}
	var found []WorkspaceInfo
	for token := ""; ; {
		request := &pb.ListWorkspacesRequest{PageSize: maxPageSize, PageToken: token, Filter: chosen}
		response, err := unary(ctx, c, c.lifecycle.ListWorkspaces, request, c.timeout)
		if err != nil {
			return nil, err
		}
		for _, workspace := range response.GetWorkspaces() {
			found = append(found, workspaceInfo(workspace))
		}
		if token = response.GetNextPageToken(); token == "" {
			return found, nil
		}
	}
}

// Watch gives the workspaces that match: each in its present state, then every change, until the loop is left, which ends the
// call on the server, or an error, which comes last.
//
// After a broken connection the present states come again, but for those that were seen. A slow reader gets the newest state of
// each.
func (c *Client) Watch(ctx context.Context, filter Filter) iter.Seq2[WorkspaceInfo, error] {
	return func(yield func(WorkspaceInfo, error) bool) {
		chosen, err := filter.proto()
		if err != nil {
			yield(WorkspaceInfo{}, err)
			return
		}
		ctx, cancel := c.lasting(ctx)
		defer cancel()
		watch := &workspaceWatch{client: c, filter: chosen, seen: map[string]uint64{}}
		for {
			left, err := watch.once(ctx, yield)
			if left {
				return
			}
			if !watch.lost.pause(ctx, c, err) {
				yield(WorkspaceInfo{}, err)
				return
			}
		}
	}
}

type workspaceWatch struct {
	client *Client
	filter *pb.WorkspaceFilter
	seen   map[string]uint64
	lost   outage
}

// once is one call; it returns whether the caller has left the loop, else why the call ended.
func (w *workspaceWatch) once(ctx context.Context, yield func(WorkspaceInfo, error) bool) (left bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.client.lifecycle.WatchWorkspaces(ctx, &pb.WatchWorkspacesRequest{Filter: w.filter})
	if err != nil {
		return false, w.client.failure(ctx, err, nil)
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return false, w.client.streamFailure(ctx, err, stream.Trailer())
		}
		w.client.answered.Store(true)
		w.lost.over()
		workspace := response.GetWorkspace()
		if workspace == nil {
			continue
		}
		info := workspaceInfo(workspace)
		if revision, known := w.seen[info.ID]; known && revision == info.Revision {
			continue
		}
		if info.State == StateDeleted {
			delete(w.seen, info.ID)
		} else {
			w.seen[info.ID] = info.Revision
		}
		if !yield(info, nil) {
			return true, nil
		}
	}
}

// outage measures how long a stream has been without a connection.
type outage struct {
	since, unreachable time.Time
	delays             backoff
}

func (o *outage) over() {
	if !o.since.IsZero() || !o.unreachable.IsZero() || o.delays.attempt > 0 {
		*o = outage{}
	}
}

// patience is how long the first event of a call is waited for: a connection attempt must not outlast the time that is left.
func (o *outage) patience(limit time.Duration) time.Duration {
	if o.since.IsZero() {
		return silence
	}
	return min(silence, max(time.Millisecond, time.Until(o.since.Add(limit))))
}

// pause waits before the next attempt; false when there is none, because of the error, the time or the context.
func (o *outage) pause(ctx context.Context, c *Client, err error) bool {
	now := time.Now()
	if o.since.IsZero() {
		o.since = now
	}
	since := o.since
	if e, ok := err.(*Error); ok && e.Is(ErrUnreachable) {
		if o.unreachable.IsZero() {
			o.unreachable = now
		}
		since = o.unreachable
	}
	limit := c.retryLimit(err, c.resumeTimeout)
	delay := o.delays.next(retryAfter(err))
	return limit > 0 && now.Add(delay).Before(since.Add(limit)) && c.pause(ctx, delay)
}
