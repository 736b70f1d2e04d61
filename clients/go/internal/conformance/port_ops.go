package main

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"

	"github.com/workspaced/workspaced/clients/go"
)

func init() {
	register(map[string]operation{
		"list_ports":         listPorts,
		"tunnel":             tunnel,
		"tunnel_send":        tunnelSend,
		"tunnel_close_write": tunnelCloseWrite,
		"tunnel_recv":        tunnelRecv,
		"tunnel_close":       tunnelClose,
	})
}

func listPorts(ctx context.Context, s *session, a args) (any, error) {
	found, err := s.workspace(a).ListPorts(ctx)
	if err != nil {
		return nil, err
	}
	ports := []int{}
	for _, info := range found {
		ports = append(ports, info.Port)
	}
	slices.Sort(ports)
	return object{"ports": ports}, nil
}

func tunnel(ctx context.Context, s *session, a args) (any, error) {
	port := a.need("port").integer("port", 0)
	var conn net.Conn
	var err error
	if a.has("host") {
		conn, err = s.workspace(a).DialContext(ctx, "tcp", net.JoinHostPort(a.str("host", ""), strconv.Itoa(port)))
	} else {
		conn, err = s.workspace(a).Tunnel(ctx, port)
	}
	if err != nil {
		return nil, err
	}
	s.put(a, "tunnel", conn)
	return object{}, nil
}

func tunnelOf(s *session, a args) *workspaced.Tunnel { return get[*workspaced.Tunnel](s, a, "tunnel") }

// closedWith closes the tunnel when the request is cancelled: a connection has no other way.
func closedWith(ctx context.Context, t *workspaced.Tunnel, work func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = t.Close() })
	defer stop()
	err := work()
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func tunnelSend(ctx context.Context, s *session, a args) (any, error) {
	t := tunnelOf(s, a)
	return object{}, closedWith(ctx, t, func() error {
		_, err := io.Copy(t, a.data("data"))
		return err
	})
}

func tunnelCloseWrite(_ context.Context, s *session, a args) (any, error) {
	return object{}, tunnelOf(s, a).CloseWrite()
}

func tunnelRecv(ctx context.Context, s *session, a args) (any, error) {
	t, sum, end := tunnelOf(s, a), newSink(), false
	buffer, wanted := make([]byte, 256<<10), int64(a.integer("bytes", -1))
	err := closedWith(ctx, t, func() error {
		for wanted < 0 || sum.size < wanted {
			n, err := t.Read(buffer)
			_, _ = sum.Write(buffer[:n]) // never fails
			if errors.Is(err, io.EOF) {
				end = true
				return nil
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	made := sum.result()
	made["end"] = end
	return made, nil
}

func tunnelClose(_ context.Context, s *session, a args) (any, error) {
	return object{}, tunnelOf(s, a).Close()
}
