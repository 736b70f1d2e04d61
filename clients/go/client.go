package workspaced

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

const revisionKey = "x-workspaced-api-revision"

// Client is a connection to a server, made by [Dial]. Any number of goroutines may use it at once.
type Client struct {
	timeout       time.Duration
	retryTimeout  time.Duration
	resumeTimeout time.Duration
	warn          func(string)
	liveness      *liveness

	// ctx ends when the client is closed; companions are the goroutines that end with it.
	ctx        context.Context
	cancel     context.CancelFunc
	companions sync.WaitGroup
	// starting is held while a companion begins, which none does after the end of ctx.
	starting sync.Mutex
	closing  sync.Once
	closed   error

	// answered tells whether the server was ever there: one that was is waited for.
	answered atomic.Bool
	compared atomic.Bool

	channel    *grpc.ClientConn
	discovery  pb.DiscoveryServiceClient
	execution  pb.ExecutionServiceClient
	files      pb.FileServiceClient
	lifecycle  pb.LifecycleServiceClient
	management pb.ManagementServiceClient
	offload    pb.OffloadServiceClient
	ports      pb.PortServiceClient
	server     pb.ServerServiceClient
}

func newClient(conf config) *Client {
	ctx, cancel := context.WithCancel(context.Background())
	return &Client{
		timeout:       conf.timeout,
		retryTimeout:  conf.retryTimeout,
		resumeTimeout: conf.resumeTimeout,
		warn:          conf.warn,
		liveness:      newLiveness(conf.keepalive),
		ctx:           ctx,
		cancel:        cancel,
	}
}

func (c *Client) use(channel *grpc.ClientConn) {
	c.channel = channel
	c.discovery = pb.NewDiscoveryServiceClient(channel)
	c.execution = pb.NewExecutionServiceClient(channel)
	c.files = pb.NewFileServiceClient(channel)
	c.lifecycle = pb.NewLifecycleServiceClient(channel)
	c.management = pb.NewManagementServiceClient(channel)
	c.offload = pb.NewOffloadServiceClient(channel)
	c.ports = pb.NewPortServiceClient(channel)
	c.server = pb.NewServerServiceClient(channel)
}

// Close ends the calls and streams that are open, as cancelled, and closes the connection. Leases last until their
// time. Idempotent.
func (c *Client) Close() error {
	c.closing.Do(func() {
		c.starting.Lock()
		c.cancel()
		c.starting.Unlock()
		c.companions.Wait()
		c.closed = c.channel.Close()
		c.liveness.close()
	})
	return c.closed
}

// Conn is the channel to the server, for stubs of workspacedv1 that this package does not wrap.
func (c *Client) Conn() grpc.ClientConnInterface { return c.channel }

// Workspace is a handle on a workspace, without asking the server.
func (c *Client) Workspace(id string) *Workspace {
	return &Workspace{ID: id, client: c}
}

// companion runs work beside the caller; Close waits for it. It ends soon after c.ctx does. False when the client
// is closed.
func (c *Client) companion(work func()) bool {
	c.starting.Lock()
	defer c.starting.Unlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.companions.Go(work)
	return true
}

// lasting makes a context that ends with the caller's or with the client, whichever is first. Cancel frees it.
func (c *Client) lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

func (c *Client) observeUnary(
	ctx context.Context, method string, request, response any, channel *grpc.ClientConn, invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	defer c.liveness.begin()()
	var trailer metadata.MD
	if !c.compared.Load() {
		options = append(options, grpc.Trailer(&trailer))
	}
	err := invoke(ctx, method, request, response, channel, options...)
	if !c.compared.Load() {
		c.compareRevision(trailer)
	}
	return err
}

func (c *Client) observeStream(
	ctx context.Context, desc *grpc.StreamDesc, channel *grpc.ClientConn, method string, streamer grpc.Streamer,
	options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	end := sync.OnceFunc(c.liveness.begin())
	stream, err := streamer(ctx, desc, channel, method, append(options, grpc.OnFinish(func(error) { end() }))...)
	if err != nil {
		end()
	}
	return stream, err
}

// compareHeader does so by the answer of a stream, whose first message has arrived.
func (c *Client) compareHeader(stream grpc.ClientStream) {
	if c.compared.Load() {
		return
	}
	if header, err := stream.Header(); err == nil {
		c.compareRevision(header)
	}
}

// compareRevision warns once of a server that is older or newer than this client's code. An answer that names no revision says
// nothing: whatever is in between may have dropped it.
func (c *Client) compareRevision(answer metadata.MD) {
	values := answer.Get(revisionKey)
	if len(values) == 0 {
		return
	}
	theirs, err := strconv.ParseUint(values[0], 10, 32)
	if err != nil || !c.compared.CompareAndSwap(false, true) {
		return // a form that a newer server has
	}
	switch ours := uint64(apiRevision()); {
	case theirs < ours:
		c.warn(fmt.Sprintf("the server implements revision %d of the API, older than revision %d that this client was made for: "+
			"RPCs can be missing there (UNIMPLEMENTED) and newer options are ignored; upgrade the server", theirs, ours))
	case theirs > ours:
		c.warn(fmt.Sprintf("this client was made for revision %d of the API, older than revision %d of the server: it does not "+
			"know all that the server can do; upgrade the client", ours, theirs))
	}
}

// apiRevision is the revision of the API that this client was generated from.
func apiRevision() uint32 {
	options := pb.File_workspaced_v1_server_proto.Options()
	revision, _ := proto.GetExtension(options, pb.E_ApiRevision).(uint32)
	return revision
}
