package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/workspaced/workspaced/clients/go"
)

func init() {
	register(map[string]operation{
		"run":          run,
		"exec":         execute,
		"start":        start,
		"attach":       attach,
		"process":      process,
		"processes":    processes,
		"process_info": processInfo,
		"write":        write,
		"close_stdin":  closeStdin,
		"resize":       resize,
		"signal":       signal,
		"read":         read,
		"wait":         wait,
		"detach":       detach,
		"leave":        leave,
	})
}

// handle is a process, and what a read that did not come to its end has taken.
type handle struct {
	*workspaced.Process
	yieldGaps bool
	end       context.CancelFunc

	reading sync.Mutex
	pending []taken
}

// taken is one event, or a gap.
type taken struct {
	event workspaced.Event
	gap   *workspaced.OutputLostError
}

func commandOf(a args) workspaced.Command {
	var command workspaced.Command
	if json.Unmarshal(a.need("command")["command"], &command.Line) != nil {
		a.into("command", &command.Args)
	}
	command.Env, command.Dir, command.User = a.table("env"), a.str("cwd", ""), a.str("user", "")
	command.Timeout, command.KillGrace = a.seconds("process_timeout"), a.seconds("kill_grace")
	command.ID = a.str("process_id", "")
	command.DisconnectPolicy = workspaced.DisconnectPolicy(a.str("disconnect_policy", ""))
	command.OverflowPolicy = workspaced.OverflowPolicy(a.str("overflow_policy", ""))
	command.JournalLimitBytes = uint64(a.integer("journal_limit_bytes", 0))
	if command.MaxOutputBytes = a.integer("max_output_bytes", 0); a.has("max_output_bytes") && command.MaxOutputBytes == 0 {
		command.MaxOutputBytes = -1 // in Go, 0 is not to say anything
	}
	if a.has("pty") {
		var size [2]int
		a.into("pty", &size)
		command.PTY = &workspaced.Size{Cols: size[0], Rows: size[1]}
	}
	return command
}

func exitOf(exit workspaced.Exit) object {
	made := object{
		"exit_code": nil, "signal": nil, "reason": exit.Reason, "output_incomplete": exit.OutputIncomplete,
	}
	if exit.Code >= 0 {
		made["exit_code"] = exit.Code
	}
	if exit.Signal != "" {
		made["signal"] = exit.Signal
	}
	return made
}

func runResult(result *workspaced.Result) object {
	made := exitOf(result.Exit)
	made["process_id"] = result.ProcessID
	made["stdout"], made["stderr"] = dataOf(result.Stdout), dataOf(result.Stderr)
	made["truncated"] = result.Truncated
	return made
}

func run(ctx context.Context, s *session, a args) (any, error) {
	command := commandOf(a)
	if a.has("stdin") {
		command.Stdin = a.data("stdin")
	}
	result, err := s.workspace(a).Run(ctx, command)
	if err == nil && a.flag("check") {
		err = result.Check()
	}
	if err != nil {
		return nil, err
	}
	return runResult(result), nil
}

// keep stores a handle; cancel is the end of its context.
func keep(s *session, a args, p *workspaced.Process, cancel context.CancelFunc) object {
	s.put(a, "process", &handle{Process: p, yieldGaps: a.str("gaps", "") == "yield", end: cancel})
	return object{
		"process_id": p.ID, "pid": p.PID(), "existing": p.Existing(), "stdin_offset": p.StdinOffset(),
	}
}

func execute(ctx context.Context, s *session, a args) (any, error) {
	command := commandOf(a)
	command.StdinPipe = a.flag("stdin")
	made, cancel, kept := lasting(ctx)
	p, err := s.workspace(a).Exec(made, command)
	if err != nil {
		cancel()
		return nil, asAsked(ctx, err)
	}
	if !kept() {
		return nil, ctx.Err()
	}
	return keep(s, a, p, cancel), nil
}

// asAsked is the end of the request's context for an error of the context that outlives it.
func asAsked(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, workspaced.ErrCancelled) {
		return ctx.Err()
	}
	return err
}

func start(ctx context.Context, s *session, a args) (any, error) {
	command := commandOf(a)
	command.StdinPipe = a.flag("stdin")
	p, err := s.workspace(a).Start(ctx, command)
	if err != nil {
		return nil, err
	}
	keep(s, a, p, func() {})
	return object{"process_id": p.ID}, nil
}

func attach(ctx context.Context, s *session, a args) (any, error) {
	made, cancel, kept := lasting(ctx)
	options := workspaced.AttachOptions{Offset: int64(a.integer("offset", 0)), ReadOnly: a.flag("read_only")}
	p, err := s.workspace(a).Attach(made, a.need("process_id").str("process_id", ""), options)
	if err != nil {
		cancel()
		return nil, asAsked(ctx, err)
	}
	if !kept() {
		return nil, ctx.Err()
	}
	return keep(s, a, p, cancel), nil
}

func process(_ context.Context, s *session, a args) (any, error) {
	keep(s, a, s.workspace(a).Process(a.need("process_id").str("process_id", "")), func() {})
	return object{}, nil
}

func processes(ctx context.Context, s *session, a args) (any, error) {
	found, err := s.workspace(a).Processes(ctx, workspaced.ProcessState(a.str("state", "")))
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for _, info := range found {
		ids = append(ids, info.ID)
	}
	slices.Sort(ids)
	return object{"ids": ids}, nil
}

func processInfo(ctx context.Context, s *session, a args) (any, error) {
	info, err := get[*handle](s, a, "process").Info(ctx)
	if err != nil {
		return nil, err
	}
	made := object{
		"process_id": info.ID, "state": info.State, "first_offset": info.FirstOffset, "next_offset": info.NextOffset,
		"stdin_offset": info.StdinOffset, "stdin_open": info.StdinOpen, "command": info.Line, "exit": nil,
	}
	if info.Args != nil {
		made["command"] = info.Args
	}
	if info.Exit != nil {
		made["exit"] = exitOf(*info.Exit)
	}
	return made, nil
}

func write(ctx context.Context, s *session, a args) (any, error) {
	h := get[*handle](s, a, "process")
	source, buffer := a.data("data"), make([]byte, mib)
	for {
		n, err := io.ReadFull(source, buffer)
		if n > 0 {
			if _, err := h.WriteStdin(ctx, buffer[:n]); err != nil {
				return nil, err
			}
		}
		if err != nil {
			return object{"stdin_offset": h.StdinOffset()}, nil
		}
	}
}

func closeStdin(ctx context.Context, s *session, a args) (any, error) {
	return object{}, get[*handle](s, a, "process").CloseStdin(ctx)
}

func resize(ctx context.Context, s *session, a args) (any, error) {
	size := workspaced.Size{Cols: a.integer("cols", 0), Rows: a.integer("rows", 0)}
	return object{}, get[*handle](s, a, "process").Resize(ctx, size)
}

func signal(ctx context.Context, s *session, a args) (any, error) {
	h, name := get[*handle](s, a, "process"), a.need("signal").str("signal", "")
	send := h.Signal
	if a.flag("leader_only") {
		send = h.SignalLeader
	}
	signaled, err := send(ctx, name)
	return object{"signaled": signaled}, err
}

func wait(ctx context.Context, s *session, a args) (any, error) {
	h := get[*handle](s, a, "process")
	err := h.Wait(ctx)
	var failed *workspaced.ExitError
	if errors.As(err, &failed) {
		return exitOf(failed.Exit), nil
	}
	if err != nil {
		return nil, err
	}
	return exitOf(workspaced.Exit{Reason: workspaced.ExitExited}), nil
}

func detach(_ context.Context, s *session, a args) (any, error) {
	h := get[*handle](s, a, "process")
	h.Detach()
	h.end()
	return object{}, nil
}

func leave(_ context.Context, s *session, a args) (any, error) {
	h := get[*handle](s, a, "process")
	defer h.end()
	return object{}, h.Close()
}

func read(ctx context.Context, s *session, a args) (any, error) {
	h := get[*handle](s, a, "process")
	h.reading.Lock()
	defer h.reading.Unlock()
	sum := newReading([]byte(a.str("until", "")), a.integer("bytes", -1))
	kept := h.pending
	h.pending = nil
	for _, one := range kept {
		sum.add(one)
	}
	end := false
	for !sum.enough {
		event, err := h.Next(ctx)
		var lost *workspaced.OutputLostError
		if errors.Is(err, io.EOF) {
			end = true
			break
		}
		if err != nil && !(h.yieldGaps && errors.As(err, &lost)) {
			h.pending = kept
			return nil, err
		}
		kept = append(kept, taken{event: event, gap: lost})
		sum.add(taken{event: event, gap: lost})
	}
	made := sum.result()
	made["offset"], made["end"] = h.Offset(), end
	return made, nil
}

// reading is what one read has taken, and whether that is enough.
type reading struct {
	until  []byte
	size   int
	total  int
	sinks  map[workspaced.Stream]*sink
	tails  map[workspaced.Stream][]byte
	order  []span
	gaps   [][2]int64
	enough bool
}

type span struct {
	stream workspaced.Stream
	offset int64
	size   int64
}

func (s span) MarshalJSON() ([]byte, error) { return json.Marshal([]any{s.stream, s.offset, s.size}) }

func newReading(until []byte, size int) *reading {
	return &reading{
		until: until, size: size, enough: size == 0, order: []span{}, gaps: [][2]int64{},
		sinks: map[workspaced.Stream]*sink{
			workspaced.Stdout: newSink(), workspaced.Stderr: newSink(), workspaced.PTY: newSink(),
		},
		tails: map[workspaced.Stream][]byte{},
	}
}

func (r *reading) add(one taken) {
	if one.gap != nil {
		r.gaps = append(r.gaps, [2]int64{one.gap.Start, one.gap.End})
		return
	}
	event, size := one.event, int64(len(one.event.Data))
	_, _ = r.sinks[event.Stream].Write(event.Data) // never fails
	if last := len(r.order) - 1; last >= 0 && r.order[last].stream == event.Stream &&
		r.order[last].offset+r.order[last].size == event.Offset {
		r.order[last].size += size
	} else {
		r.order = append(r.order, span{event.Stream, event.Offset, size})
	}
	r.total += len(event.Data)
	if r.size >= 0 && r.total >= r.size {
		r.enough = true
	}
	if len(r.until) > 0 {
		seen := append(r.tails[event.Stream], event.Data...)
		r.enough = r.enough || bytes.Contains(seen, r.until)
		r.tails[event.Stream] = seen[max(0, len(seen)-len(r.until)):]
	}
}

func (r *reading) result() object {
	made := object{"order": r.order, "gaps": r.gaps}
	for stream, sink := range r.sinks {
		made[string(stream)] = sink.result()
	}
	return made
}
