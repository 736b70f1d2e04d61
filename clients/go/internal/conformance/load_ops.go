package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/workspaced/workspaced/clients/go"
)

func init() {
	register(map[string]operation{
		"scope":        scope,
		"live":         live,
		"rss":          rss,
		"bench_run":    benchRun,
		"bench_stdout": benchStdout,
		"spawn_many":   spawnMany,
		"release_many": releaseMany,
	})
}

// callCounter counts open calls.
type callCounter struct{ open atomic.Int64 }

func (c *callCounter) begin() (end func()) {
	c.open.Add(1)
	return sync.OnceFunc(func() { c.open.Add(-1) })
}

func (c *callCounter) unary(
	ctx context.Context, method string, request, response any, channel *grpc.ClientConn, invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	defer c.begin()()
	return invoke(ctx, method, request, response, channel, options...)
}

func (c *callCounter) stream(
	ctx context.Context, desc *grpc.StreamDesc, channel *grpc.ClientConn, method string, open grpc.Streamer,
	options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	end := c.begin()
	stream, err := open(ctx, desc, channel, method, append(options, grpc.OnFinish(func(error) { end() }))...)
	if err != nil {
		end()
	}
	return stream, err
}

func goroutines() int { return runtime.NumGoroutine() }

// scopes are the things that scope iterates over: each calls the function with every item until it returns false.
var scopes = map[string]func(ctx context.Context, s *session, a args, item func() bool) error{
	"exec": func(ctx context.Context, s *session, a args, item func() bool) error {
		p, err := s.workspace(a).Exec(ctx, commandOf(a))
		if err != nil {
			return err
		}
		defer p.Close()
		return eventsOf(ctx, p, item)
	},
	"attach": func(ctx context.Context, s *session, a args, item func() bool) error {
		return eventsOf(ctx, s.workspace(a).Process(a.str("process_id", "")), item)
	},
	"watch_workspaces": func(ctx context.Context, s *session, a args, item func() bool) error {
		for _, err := range s.client(a).Watch(ctx, workspaced.Filter{}) {
			if err != nil || !item() {
				return err
			}
		}
		return nil
	},
}

func eventsOf(ctx context.Context, p *workspaced.Process, item func() bool) error {
	for _, err := range p.Events(ctx) {
		if err != nil || !item() {
			return err
		}
	}
	return nil
}

// errLeft is how a user's own error leaves a scope.
var errLeft = errors.New("left")

func scope(ctx context.Context, s *session, a args) (any, error) {
	iterate, known := scopes[a.str("what", "")]
	if !known {
		panic("no scope of " + a.str("what", ""))
	}
	err := func() (err error) {
		defer func() {
			if found := recover(); found != nil {
				if found != any(errLeft) {
					panic(found)
				}
			}
		}()
		return iterate(ctx, s, a, func() bool {
			if a.str("how", "") == "error" {
				panic(errLeft) // the error of Go that leaves any scope
			}
			return false
		})
	}()
	return object{}, err
}

// live waits up to 2 s for what is ending.
func live(_ context.Context, s *session, _ args) (any, error) {
	var calls int64
	var tasks int
	for range 40 {
		// This request's own goroutine is one.
		if calls, tasks = s.calls.open.Load(), max(0, goroutines()-s.idle-1); calls == 0 && tasks == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if tasks > 0 {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}
	return object{"calls": calls, "tasks": tasks}, nil
}

func rss(context.Context, *session, args) (any, error) {
	content, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return nil, err
	}
	pages, err := strconv.Atoi(strings.Fields(string(content))[1])
	return object{"bytes": pages * os.Getpagesize()}, err
}

func benchRun(ctx context.Context, s *session, a args) (any, error) {
	ws, command, count := s.workspace(a), commandOf(a), a.need("count").integer("count", 0)
	times := make([]float64, 0, count)
	for range count {
		began := time.Now()
		if _, err := ws.Run(ctx, command); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began).Seconds())
	}
	slices.Sort(times)
	return object{"p50": times[count/2], "p90": times[count*9/10], "max": times[count-1]}, nil
}

func benchStdout(ctx context.Context, s *session, a args) (any, error) {
	began := time.Now()
	p, err := s.workspace(a).Exec(ctx, commandOf(a))
	if err != nil {
		return nil, err
	}
	defer p.Close()
	size, err := io.Copy(io.Discard, p.Stdout)
	if err != nil {
		return nil, err
	}
	return object{"bytes": size, "seconds": time.Since(began).Seconds()}, nil
}

func spawnMany(ctx context.Context, s *session, a args) (any, error) {
	ws, count := s.workspace(a), a.need("count").integer("count", 0)
	begin := func(ctx context.Context, index int) (*workspaced.Process, error) {
		command := commandOf(a)
		command.Env = map[string]string{"INDEX": strconv.Itoa(index)}
		command.DisconnectPolicy = workspaced.DisconnectKill
		return ws.Exec(ctx, command)
	}
	group, all := errgroup.WithContext(ctx)
	if a.flag("hold") {
		held := make([]*workspaced.Process, count)
		for index := range count {
			group.Go(func() (err error) {
				held[index], err = begin(context.WithoutCancel(ctx), index)
				return err
			})
		}
		err := group.Wait()
		for _, p := range held {
			if p != nil {
				s.mu.Lock()
				s.held = append(s.held, p)
				s.mu.Unlock()
			}
		}
		return object{"count": count}, err
	}
	outputs, codes := make([]string, count), make([]string, count)
	for index := range count {
		group.Go(func() error {
			p, err := begin(all, index)
			if err != nil {
				return err
			}
			defer p.Close()
			hash := sha256.New()
			if _, err := io.Copy(hash, p.Stdout); err != nil {
				return err
			}
			var failed *workspaced.ExitError
			if err := p.Wait(all); err != nil && !errors.As(err, &failed) {
				return err
			}
			exit, _ := p.Exit()
			outputs[index], codes[index] = hex.EncodeToString(hash.Sum(nil)), fmt.Sprint(exit.Code)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(codes)
	return object{"outputs": outputs, "exit_codes": slices.Compact(codes)}, nil
}

func releaseMany(_ context.Context, s *session, _ args) (any, error) {
	s.mu.Lock()
	held := s.held
	s.held = nil
	s.mu.Unlock()
	var group errgroup.Group
	for _, p := range held {
		group.Go(p.Close)
	}
	return object{}, group.Wait()
}
