package workspaced

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

func TestTokenSourceIsAskedForEveryCall(t *testing.T) {
	asked := 0
	var failure error
	client := dialTest(t, testServer(t), WithTokenSource(func(context.Context) (string, error) {
		asked++
		return "a-token", failure
	}))
	for range 3 {
		if _, err := client.ServerInfo(testContext(t), false); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
	failure = errors.New("the vault is shut")
	if _, err := client.ServerInfo(testContext(t), false); !errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), "the vault is shut") {
		t.Errorf("%v", err)
	}
}

func TestServerInfo(t *testing.T) {
	client := dialTest(t, testServer(t))
	info, err := client.ServerInfo(testContext(t), true)
	if err != nil {
		t.Fatal(err)
	}
	if info.Version == "" || info.InstanceID == "" || info.StartTime.IsZero() || info.Limits.MaxChunkBytes == 0 {
		t.Errorf("%+v", info)
	}
	if info.APIRevision != apiRevision() {
		t.Errorf("revision %d, and the client's is %d", info.APIRevision, apiRevision())
	}
}

func TestServerOfAnotherRevisionIsWarnedOfOnce(t *testing.T) {
	tests := []struct {
		name   string
		answer metadata.MD
		want   int
	}{
		{"none named", metadata.MD{}, 0},
		{"older", metadata.Pairs(revisionKey, "1"), 1},
		{"newer", metadata.Pairs(revisionKey, "1000"), 1},
		{"of another form", metadata.Pairs(revisionKey, "2.0"), 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var warnings []string
			client := dialTest(t, "127.0.0.1:1", WithWarnings(func(text string) { warnings = append(warnings, text) }))
			for range 2 {
				client.compareRevision(test.answer)
			}
			if len(warnings) != test.want {
				t.Errorf("%q", warnings)
			}
		})
	}
}

func TestDialOptionsAndUserAgent(t *testing.T) {
	var methods []string
	client := dialTest(t, testServer(t), WithUserAgent("tests/1"), WithDialOptions(grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, request, response any, channel *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption,
	) error {
		methods = append(methods, method)
		return invoke(ctx, method, request, response, channel, options...)
	})))
	if _, err := client.List(testContext(t), Filter{}); err != nil {
		t.Fatal(err)
	}
	if len(methods) != 1 || methods[0] != "/workspaced.v1.LifecycleService/ListWorkspaces" {
		t.Errorf("%q", methods)
	}
	if _, err := client.List(testContext(t), Filter{States: []WorkspaceState{"SLEEPY"}}); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("%v", err)
	}
}
