package main

import (
	"context"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/workspaced/workspaced/clients/go"
)

func init() {
	register(map[string]operation{
		"connect":          connect,
		"close_client":     closeClient,
		"server_info":      serverInfo,
		"warnings":         warnings,
		"initialize":       initialize,
		"workspace":        workspace,
		"ws_info":          wsInfo,
		"ws_close":         wsClose,
		"ws_reset":         wsReset,
		"ws_delete":        wsDelete,
		"list_workspaces":  listWorkspaces,
		"watch_workspaces": watchWorkspaces,
	})
}

func connect(_ context.Context, s *session, a args) (any, error) {
	options := []workspaced.Option{
		workspaced.WithWarnings(s.warn),
		workspaced.WithDialOptions(
			grpc.WithChainUnaryInterceptor(s.calls.unary), grpc.WithChainStreamInterceptor(s.calls.stream)),
	}
	given := func(name string, option func() workspaced.Option) {
		if a.has(name) {
			options = append(options, option())
		}
	}
	given("token", func() workspaced.Option { return workspaced.WithToken(a.str("token", "")) })
	given("token_file", func() workspaced.Option {
		path := a.str("token_file", "")
		return workspaced.WithTokenSource(func(context.Context) (string, error) {
			content, err := os.ReadFile(path)
			return strings.TrimSpace(string(content)), err
		})
	})
	given("tls", func() workspaced.Option { return workspaced.WithTLS(nil) })
	given("ca", func() workspaced.Option { return workspaced.WithCA(a.str("ca", "")) })
	given("cert", func() workspaced.Option {
		return workspaced.WithClientCertificate(a.str("cert", ""), a.str("key", ""))
	})
	given("server_name", func() workspaced.Option { return workspaced.WithServerName(a.str("server_name", "")) })
	given("insecure", workspaced.WithInsecure)
	given("call_timeout", func() workspaced.Option { return workspaced.WithTimeout(a.seconds("call_timeout")) })
	given("retry_timeout", func() workspaced.Option { return workspaced.WithRetryTimeout(a.seconds("retry_timeout")) })
	given("resume_timeout", func() workspaced.Option { return workspaced.WithResumeTimeout(a.seconds("resume_timeout")) })
	client, err := workspaced.Dial(a.need("address").str("address", ""), options...)
	if err != nil {
		return nil, err
	}
	s.put(a, "client", client)
	return object{}, nil
}

func closeClient(_ context.Context, s *session, a args) (any, error) {
	return object{}, s.client(a).Close()
}

func serverInfo(ctx context.Context, s *session, a args) (any, error) {
	info, err := s.client(a).ServerInfo(ctx, false)
	if err != nil {
		return nil, err
	}
	backends := []string{}
	for _, backend := range info.Backends {
		if backend.Available {
			backends = append(backends, backendName(backend.Backend))
		}
	}
	slices.Sort(backends)
	return object{
		"version": info.Version, "api_revision": info.APIRevision, "backends": backends,
		"default_backend": backendName(info.DefaultBackend), "principal": info.Principal,
		"scopes": slices.Sorted(slices.Values(info.Scopes)),
	}, nil
}

func backendName(backend workspaced.Backend) string {
	if backend == workspaced.BackendUnspecified {
		return "unspecified"
	}
	return string(backend)
}

func warnings(_ context.Context, s *session, _ args) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return object{"messages": append([]string{}, s.warnings...)}, nil
}

func initialize(ctx context.Context, s *session, a args) (any, error) {
	options := workspaced.InitializeOptions{
		ID: a.str("id", ""), Backend: workspaced.Backend(a.str("backend", "")), Image: a.str("image", ""),
		Env: a.table("env"), Labels: a.table("labels"), Instructions: a.str("instructions", ""),
		IdleTimeout: a.seconds("idle_timeout"), RequestID: a.str("request_id", ""), Template: a.str("template", ""),
		Workdir: a.str("workdir", ""), NoWait: a.flag("no_wait"),
	}
	if a.has("persistent") {
		persistent := a.flag("persistent")
		options.Persistent = &persistent
	}
	var resources struct {
		CPUMillis   uint32 `json:"cpu_millis"`
		MemoryBytes uint64 `json:"memory_bytes"`
		DiskBytes   uint64 `json:"disk_bytes"`
		PIDs        uint32 `json:"pids"`
		GPUs        uint32 `json:"gpus"`
	}
	a.into("resources", &resources)
	options.Resources = workspaced.Resources(resources)
	ws, err := s.client(a).Initialize(ctx, options)
	if err != nil {
		return nil, err
	}
	s.put(a, "ws", ws)
	return object{"workspace_id": ws.ID}, nil
}

func workspace(_ context.Context, s *session, a args) (any, error) {
	s.put(a, "ws", s.client(a).Workspace(a.need("id").str("id", "")))
	return object{}, nil
}

func wsInfo(ctx context.Context, s *session, a args) (any, error) {
	info, err := s.workspace(a).Info(ctx)
	if err != nil {
		return nil, err
	}
	labels := info.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	return object{
		"workspace_id": info.ID, "state": info.State, "backend": backendName(info.Backend), "labels": labels,
		"image": info.Image, "workdir": info.Workdir, "state_reason": info.StateReason,
	}, nil
}

func wsClose(ctx context.Context, s *session, a args) (any, error) {
	info, err := s.workspace(a).Close(ctx, workspaced.CloseOptions{Grace: a.seconds("grace")})
	return object{"state": info.State}, err
}

func wsReset(ctx context.Context, s *session, a args) (any, error) {
	options := workspaced.ResetOptions{WipeFiles: a.flag("wipe_files"), KillProcesses: a.flag("kill_processes")}
	info, err := s.workspace(a).Reset(ctx, options)
	return object{"state": info.State}, err
}

func wsDelete(ctx context.Context, s *session, a args) (any, error) {
	return object{}, s.workspace(a).Delete(ctx, workspaced.DeleteOptions{AllowMissing: a.flag("allow_missing")})
}

func filterOf(a args) workspaced.Filter {
	filter := workspaced.Filter{Labels: a.table("labels"), IDs: a.list("ids")}
	a.into("states", &filter.States)
	a.into("backends", &filter.Backends)
	return filter
}

func listWorkspaces(ctx context.Context, s *session, a args) (any, error) {
	found, err := s.client(a).List(ctx, filterOf(a))
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

func watchWorkspaces(ctx context.Context, s *session, a args) (any, error) {
	states := []workspaced.WorkspaceState{}
	for info, err := range s.client(a).Watch(ctx, filterOf(a)) {
		if err != nil {
			return nil, err
		}
		states = append(states, info.State)
		if string(info.State) == a.str("until", "") {
			break
		}
	}
	return object{"states": states}, nil
}
