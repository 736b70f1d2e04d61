package workspaced

import (
	"errors"
	"testing"
)

func TestLifeOfAWorkspace(t *testing.T) {
	client, ctx := dialTest(t, testServer(t)), testContext(t)
	var seen []WorkspaceState
	ws, err := client.Initialize(ctx, InitializeOptions{
		Backend: BackendLocal, Labels: map[string]string{"purpose": "test"}, Env: map[string]string{"A": "1"},
		OnProgress: func(info WorkspaceInfo) { seen = append(seen, info.State) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range seen {
		if state != StateInitializing && state != StateReady {
			t.Errorf("seen while it was made: %v", seen)
		}
	}
	info, err := ws.Info(ctx)
	if err != nil || info.State != StateReady || info.Backend != BackendLocal || info.Labels["purpose"] != "test" || info.Workdir == "" {
		t.Fatalf("%+v, %v", info, err)
	}
	if again, err := client.Initialize(ctx, InitializeOptions{ID: ws.ID}); err != nil || again.ID != ws.ID {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := client.Initialize(ctx, InitializeOptions{ID: ws.ID, Workdir: "/elsewhere", Backend: BackendLocal}); !errors.Is(err, ErrAlreadyExists) && !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("another spec: %v", err)
	}
	if info, err := ws.Reset(ctx, ResetOptions{WipeFiles: true, KillProcesses: true}); err != nil || info.State != StateReady {
		t.Errorf("%+v, %v", info, err)
	}
	if info, err := ws.Close(ctx, CloseOptions{}); err != nil || info.State != StateClosed {
		t.Errorf("%+v, %v", info, err)
	}
	if err := ws.Delete(ctx, DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := ws.Delete(ctx, DeleteOptions{}); !errors.Is(err, ErrWorkspaceNotFound) {
		t.Errorf("%v", err)
	}
	if err := ws.Delete(ctx, DeleteOptions{AllowMissing: true}); err != nil {
		t.Error(err)
	}
}

func TestInitializeRefuses(t *testing.T) {
	client := dialTest(t, "127.0.0.1:1")
	tests := []struct {
		name    string
		options InitializeOptions
	}{
		{"an unknown backend", InitializeOptions{Backend: "mainframe"}},
		{"two policies of the network", InitializeOptions{Network: Network{None: true, Allow: []string{"example.test"}}}},
		{"options of nothing", InitializeOptions{BackendOptions: "docker"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var e *Error
			if _, err := client.Initialize(testContext(t), test.options); !errors.As(err, &e) || !errors.Is(err, ErrInvalidArgument) || e.Reason != "" {
				t.Errorf("%v", err)
			}
		})
	}
}
