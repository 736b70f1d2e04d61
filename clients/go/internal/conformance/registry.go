package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/workspaced/workspaced/clients/go"
)

type object map[string]any

// operation is one of OPERATIONS.md. Wrong arguments panic, which is a DriverBug.
type operation func(ctx context.Context, s *session, a args) (any, error)

// operations is filled by the files of this package, each by an init of its own.
var operations = map[string]operation{}

func register(more map[string]operation) {
	for name, op := range more {
		if _, twice := operations[name]; twice {
			panic("two operations " + name)
		}
		operations[name] = op
	}
}

type driverBug string

func (d driverBug) Error() string { return string(d) }

// session holds what operations made, by the names that requests chose.
type session struct {
	mu       sync.Mutex
	objects  map[string]any
	warnings []string
	held     []*workspaced.Process
	calls    callCounter
	idle     int
}

func newSession() *session {
	s := &session{objects: map[string]any{}}
	s.idle = goroutines()
	return s
}

// put stores what was made under the name of `as`.
func (s *session) put(a args, standard string, made any) {
	s.store(a.str("as", standard), made)
}

func (s *session) store(name string, made any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[name] = made
}

func (s *session) warn(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warnings = append(s.warnings, message)
}

// get is what a request names by a kind, which is also the default name.
func get[T any](s *session, a args, kind string) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := a.str(kind, kind)
	found, ok := s.objects[name].(T)
	if !ok {
		panic(fmt.Sprintf("%q is no %T but %T", name, found, s.objects[name]))
	}
	return found
}

func (s *session) client(a args) *workspaced.Client { return get[*workspaced.Client](s, a, "client") }

func (s *session) workspace(a args) *workspaced.Workspace {
	return get[*workspaced.Workspace](s, a, "ws")
}

func allOf[T any](s *session) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []T
	for _, made := range s.objects {
		if made, ok := made.(T); ok {
			found = append(found, made)
		}
	}
	return found
}

// lasting is a context for what outlives its request: it ends with the request's until keep is called, which is false when it
// has ended already.
func lasting(ctx context.Context) (made context.Context, cancel context.CancelFunc, keep func() bool) {
	made, cancel = context.WithCancel(context.WithoutCancel(ctx))
	return made, cancel, context.AfterFunc(ctx, cancel)
}

// args are the arguments of a request.
type args map[string]json.RawMessage

func (a args) has(name string) bool { return len(a[name]) > 0 && string(a[name]) != "null" }

// into decodes an argument; nothing happens when it is absent.
func (a args) into(name string, target any) {
	if !a.has(name) {
		return
	}
	if err := json.Unmarshal(a[name], target); err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
}

func (a args) need(name string) args {
	if !a.has(name) {
		panic("needs " + name)
	}
	return a
}

func (a args) str(name, standard string) string {
	a.into(name, &standard)
	return standard
}

func (a args) integer(name string, standard int) int {
	a.into(name, &standard)
	return standard
}

func (a args) flag(name string) bool {
	var value bool
	a.into(name, &value)
	return value
}

// seconds is a duration; 0 when it is absent.
func (a args) seconds(name string) time.Duration {
	var value float64
	a.into(name, &value)
	return time.Duration(value * float64(time.Second))
}

func (a args) list(name string) []string {
	var value []string
	a.into(name, &value)
	return value
}

func (a args) table(name string) map[string]string {
	var value map[string]string
	a.into(name, &value)
	return value
}

// seconds as results have them.
func secondsOf(d time.Duration) any {
	if d == 0 {
		return nil
	}
	return d.Seconds()
}
