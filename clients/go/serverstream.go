package workspaced

import (
	"context"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// serverStream gives the messages of a call, and its error last. Leaving the loop cancels the call.
func serverStream[Request, Response any](
	ctx context.Context,
	c *Client,
	method func(context.Context, *Request, ...grpc.CallOption) (grpc.ServerStreamingClient[Response], error),
	request *Request,
) iter.Seq2[*Response, error] {
	return func(yield func(*Response, error) bool) {
		callContext, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := method(callContext, request)
		if err != nil {
			yield(nil, c.failure(ctx, err, nil))
			return
		}
		for {
			response, err := stream.Recv()
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(nil, c.failure(ctx, err, stream.Trailer()))
				return
			}
			c.answered.Store(true)
			if !yield(response, nil) {
				return
			}
		}
	}
}

// pages gives the items of a list that comes in pages, and its error last.
func pages[T any](page func(token string) (items []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		token := ""
		for {
			items, next, err := page(token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}

// collect gathers what a sequence gives, up to its error.
func collect[T any](items iter.Seq2[T, error]) ([]T, error) {
	found := []T{}
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		found = append(found, item)
	}
	return found, nil
}

// each converts a list.
func each[From, To any](items []From, convert func(From) To) []To {
	made := make([]To, len(items))
	for i, item := range items {
		made[i] = convert(item)
	}
	return made
}

func unavailable(message string) *Error {
	return &Error{Code: codes.Unavailable, Message: message}
}
