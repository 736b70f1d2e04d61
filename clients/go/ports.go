package workspaced

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// PortInfo is a TCP port that listens inside a workspace.
type PortInfo struct {
	Port    int
	Address string
	// ProcessID is the process that listens; empty when unknown.
	ProcessID string
	PID       int
}

// ListPorts gives the TCP ports that listen inside, by number.
func (w *Workspace) ListPorts(ctx context.Context) ([]PortInfo, error) {
	var found []PortInfo
	for token := ""; ; {
		request := &pb.ListPortsRequest{WorkspaceId: w.ID, PageSize: maxPageSize, PageToken: token}
		response, err := unary(ctx, w.client, w.client.ports.ListPorts, request, w.client.timeout)
		if err != nil {
			return nil, err
		}
		for _, port := range response.GetPorts() {
			found = append(found, PortInfo{
				Port: int(port.GetPort()), Address: port.GetAddress(), ProcessID: port.GetProcessId(), PID: int(port.GetPid()),
			})
		}
		if token = response.GetNextPageToken(); token == "" {
			return found, nil
		}
	}
}

// Tunnel connects to a port inside the workspace. The context is of connecting alone; the connection lasts until it is closed,
// or the client is. Errors: [ErrPortRefused] when nothing listens.
func (w *Workspace) Tunnel(ctx context.Context, port int) (*Tunnel, error) {
	return w.tunnel(ctx, "", port)
}

// DialContext connects to an address as seen from inside the workspace. It has the form that an [net/http.Transport] takes:
//
//	client := &http.Client{Transport: &http.Transport{DialContext: ws.DialContext}}
//	response, err := client.Get("http://localhost:8000/")
func (w *Workspace) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil, &net.OpError{Op: "dial", Net: network, Err: net.UnknownNetworkError(network)}
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(service)
	if err != nil {
		return nil, fmt.Errorf("workspaced: %q is no number of a port", service)
	}
	tunnel, err := w.tunnel(ctx, host, port)
	if err != nil {
		return nil, err
	}
	return tunnel, nil
}

func (w *Workspace) tunnel(ctx context.Context, host string, port int) (*Tunnel, error) {
	if port < 1 || port > 65535 {
		return nil, invalidArgument(fmt.Sprintf("%d is no port", port))
	}
	return openTunnel(ctx, w.client, &pb.TunnelOpen{WorkspaceId: w.ID, Host: host, Port: uint32(port)})
}
