package workspaced

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// How long a server is tried that never answered before.
	firstContact = 2 * time.Second
	// The deadline of a call that may have to pull an image.
	longTimeout = 30 * time.Minute
	// How long a workspace that its server cannot reach is tried again: a guest that was killed is back well before.
	unreachableTimeout = 10 * time.Second
)

// method is a unary method of a generated stub.
type method[Req, Resp any] func(context.Context, Req, ...grpc.CallOption) (Resp, error)

// once makes one unary call. A timeout of 0 is none; a deadline of the context counts in its place.
func once[Req, Resp any](
	ctx context.Context, c *Client, call method[Req, Resp], request Req, timeout time.Duration,
) (Resp, error) {
	ctx, cancel := bounded(ctx, timeout)
	defer cancel()
	var trailer metadata.MD
	response, err := call(ctx, request, grpc.Trailer(&trailer))
	if err != nil {
		return response, c.failure(ctx, err, trailer)
	}
	c.answered.Store(true)
	return response, nil
}

// unary makes a call that may be repeated: tried again while the connection is down, for at most the client's retry timeout.
//
// The service configuration makes the first few attempts. What goes on here is a server that was there and is being restarted,
// and one that names a delay. A server that never answered fails soon.
func unary[Req, Resp any](
	ctx context.Context, c *Client, call method[Req, Resp], request Req, timeout time.Duration,
) (Resp, error) {
	return repeat(ctx, c, timeout, c.retryTimeout, func(ctx context.Context) (Resp, error) {
		return once(ctx, c, call, request, 0)
	})
}

// repeat does the same for any work that may be repeated.
func repeat[T any](
	ctx context.Context, c *Client, timeout, retryTimeout time.Duration, work func(context.Context) (T, error),
) (T, error) {
	ctx, cancel := bounded(ctx, timeout)
	defer cancel()
	start := time.Now()
	var delays backoff
	for {
		result, err := work(ctx)
		if err == nil {
			return result, nil
		}
		limit := c.retryLimit(err, retryTimeout)
		delay := delays.next(retryAfter(err))
		if limit == 0 || time.Since(start)+delay > limit || !c.pause(ctx, delay) {
			return result, err
		}
	}
}

// bounded gives the context a deadline when it has none.
func bounded(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has || timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}

// pause waits; false when the context or the client ends first, or the context's deadline is sooner than that.
func (c *Client) pause(ctx context.Context, delay time.Duration) bool {
	if deadline, has := ctx.Deadline(); has && time.Until(deadline) < delay {
		return false
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-c.ctx.Done():
		return false
	}
}

// failure is the *Error for what grpc returned, or for the end of the client.
func (c *Client) failure(ctx context.Context, err error, trailer metadata.MD) error {
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && c.ctx.Err() != nil {
		return errClosed()
	}
	return convert(ctx, err, trailer)
}

// streamFailure is the same for the end of a stream, whose regular end came too soon for the caller.
func (c *Client) streamFailure(ctx context.Context, err error, trailer metadata.MD) error {
	if errors.Is(err, io.EOF) {
		return &Error{Code: codes.Unavailable, Message: "the stream ended too soon"}
	}
	return c.failure(ctx, err, trailer)
}

func errClosed() *Error {
	return &Error{Code: codes.Canceled, Message: "the client is closed", cause: ErrClosed}
}

// retryLimit is for how long of failure a call that may be repeated is tried again after this error; 0 for never.
func (c *Client) retryLimit(err error, limit time.Duration) time.Duration {
	var e *Error
	switch {
	case !errors.As(err, &e) || c.ctx.Err() != nil || e.cause != nil:
		return 0
	case errors.Is(e, ErrUnreachable):
		return min(limit, unreachableTimeout)
	case connectionLost(e):
		if c.answered.Load() {
			return limit
		}
		return min(limit, firstContact)
	case errors.Is(e, ErrUnavailable) && e.RetryAfter > 0:
		return limit
	default:
		return 0
	}
}

func retryAfter(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}

// optionalDuration is the message for a duration; nil for 0, which stands for the server's default.
func optionalDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
