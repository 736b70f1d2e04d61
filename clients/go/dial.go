package workspaced

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// Version is the version of this module.
const Version = "0.1.0"

const (
	mib             = 1 << 20
	maxMessageBytes = 8 * mib
	// A reader that pauses holds so much a stream; the window of the connection is for all streams together.
	streamWindowBytes     = 2 * mib
	connectionWindowBytes = 16 * mib
	readBufferBytes       = 256 << 10
)

// The service configuration that all clients of workspaced share: which calls are repeated, and when.
//
//go:embed service_config.json
var serviceConfig string

type config struct {
	token         func(context.Context) (string, error)
	tls           *tls.Config
	insecure      bool
	timeout       time.Duration
	retryTimeout  time.Duration
	resumeTimeout time.Duration
	keepalive     keepaliveTimes
	dialOptions   []grpc.DialOption
	warn          func(string)
	userAgent     string
	err           error
}

// Option changes how [Dial] connects.
type Option func(*config)

// WithToken authenticates every call with a bearer token. A token goes to another machine only over TLS, unless [WithInsecure].
func WithToken(token string) Option {
	return func(c *config) {
		if err := checkToken(token); err != nil {
			c.err = errors.Join(c.err, err)
		}
		c.token = func(context.Context) (string, error) { return token, nil }
	}
}

// WithTokenSource asks for the token before every call, so that it can be rotated. An error of the source fails the call as
// [ErrUnauthenticated].
func WithTokenSource(source func(context.Context) (string, error)) Option {
	return func(c *config) { c.token = source }
}

// WithTLS speaks TLS, by a clone of the configuration; nil trusts the authorities of the system. Give it before the options that
// add to it.
func WithTLS(conf *tls.Config) Option {
	return func(c *config) {
		c.tls = conf.Clone()
		c.secure()
	}
}

// WithCA speaks TLS and trusts the authorities of a PEM file, and no other.
func WithCA(path string) Option {
	return func(c *config) {
		pem, err := os.ReadFile(path)
		pool := x509.NewCertPool()
		if err == nil && !pool.AppendCertsFromPEM(pem) {
			err = invalidArgument("no certificate in " + path)
		}
		c.err = errors.Join(c.err, err)
		c.secure().RootCAs = pool
	}
}

// WithClientCertificate speaks TLS and authenticates this client by a certificate and its key in PEM files (mutual TLS).
func WithClientCertificate(certPath, keyPath string) Option {
	return func(c *config) {
		certificate, err := tls.LoadX509KeyPair(certPath, keyPath)
		c.err = errors.Join(c.err, err)
		c.secure().Certificates = []tls.Certificate{certificate}
	}
}

// WithServerName speaks TLS and expects this name in the server's certificate instead of the target's host.
func WithServerName(name string) Option {
	return func(c *config) { c.secure().ServerName = name }
}

// WithInsecure allows a token to be sent to another machine in the clear.
func WithInsecure() Option {
	return func(c *config) { c.insecure = true }
}

// WithTimeout bounds each short call whose context has no deadline (60 s).
func WithTimeout(timeout time.Duration) Option {
	return func(c *config) { c.timeout = timeout }
}

// WithRetryTimeout says how long a call that may be repeated is tried again (10 s).
func WithRetryTimeout(timeout time.Duration) Option {
	return func(c *config) { c.retryTimeout = timeout }
}

// WithResumeTimeout says how long a stream may be without a connection before it fails (60 s).
func WithResumeTimeout(timeout time.Duration) Option {
	return func(c *config) { c.resumeTimeout = timeout }
}

// WithKeepalive says after how long a silence the server is asked for a sign of life while calls are open (5 s), and how long
// it has for one (3 s). Then the connection is given up and everything that can be resumed is.
func WithKeepalive(silence, timeout time.Duration) Option {
	return func(c *config) { c.keepalive = keepaliveTimes{silence: silence, timeout: timeout} }
}

// WithDialOptions adds options of grpc, after those of this package.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(c *config) { c.dialOptions = append(c.dialOptions, options...) }
}

// WithWarnings receives what a person should know but no call fails for, such as a server that is older than this client.
// Without it, warnings go to [slog.Default]. It may be called by any goroutine.
func WithWarnings(warn func(string)) Option {
	return func(c *config) { c.warn = warn }
}

// WithUserAgent puts the name of a program before that of this client in the user agent.
func WithUserAgent(name string) Option {
	return func(c *config) { c.userAgent = name + " " + c.userAgent }
}

// Dial makes a client of the server at a target: "host:port", "unix:///path" or another name that grpc resolves. Nothing is
// sent before the first call, and no error of the network is reported before it.
func Dial(target string, options ...Option) (*Client, error) {
	c := config{
		timeout:       60 * time.Second,
		retryTimeout:  10 * time.Second,
		resumeTimeout: 60 * time.Second,
		keepalive:     keepaliveTimes{silence: 5 * time.Second, timeout: 3 * time.Second},
		warn:          func(message string) { slog.Default().Warn(message) },
		userAgent:     "workspaced-go/" + Version,
	}
	for _, option := range options {
		option(&c)
	}
	if c.err != nil {
		return nil, fmt.Errorf("workspaced: %w", c.err)
	}
	loopback := isLoopback(target)
	if c.token != nil && c.tls == nil && !loopback && !c.insecure {
		return nil, invalidArgument(fmt.Sprintf("a token to %q needs WithTLS, or WithInsecure to send it in the clear", target))
	}
	client := newClient(c)
	channel, err := grpc.NewClient(target, client.dialOptions(c, loopback)...)
	if err != nil {
		return nil, invalidArgument(err.Error())
	}
	client.use(channel)
	return client, nil
}

func (c *config) secure() *tls.Config {
	if c.tls == nil {
		c.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return c.tls
}

func (c *Client) dialOptions(conf config, loopback bool) []grpc.DialOption {
	transport := insecure.NewCredentials()
	if conf.tls != nil {
		transport = credentials.NewTLS(conf.tls)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(&watchedCredentials{TransportCredentials: transport, liveness: c.liveness}),
		grpc.WithUserAgent(conf.userAgent),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithInitialWindowSize(streamWindowBytes),
		grpc.WithInitialConnWindowSize(connectionWindowBytes),
		grpc.WithReadBufferSize(readBufferBytes),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)),
		// A restarted server is found again quickly, and a connection attempt to a frozen one does not last 20 s.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastDelay},
			MinConnectTimeout: 5 * time.Second,
		}),
		// The shortest that grpc allows: it bounds what a kernel may hold back. See liveness for a frozen server.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: conf.keepalive.timeout}),
		grpc.WithChainUnaryInterceptor(c.observeUnary),
		grpc.WithChainStreamInterceptor(c.observeStream),
	}
	if conf.token != nil {
		options = append(options, grpc.WithPerRPCCredentials(bearer{conf.token}))
	}
	if loopback {
		options = append(options, grpc.WithNoProxy())
	}
	return append(options, conf.dialOptions...)
}

// bearer sends a token with every call. Whether it may go in the clear was decided by [Dial].
type bearer struct {
	source func(context.Context) (string, error)
}

func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b.source(ctx)
	if err == nil {
		err = checkToken(token)
	}
	if err != nil {
		return nil, status.Errorf(codes.Unauthenticated, "no token for the call: %v", err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

func checkToken(token string) error {
	for _, char := range token {
		if char < ' ' || char > '~' {
			return invalidArgument("a token is printable ASCII")
		}
	}
	return nil
}

// isLoopback tells whether a target stays on this machine.
func isLoopback(target string) bool {
	if strings.HasPrefix(target, "unix:") || strings.HasPrefix(target, "unix-abstract:") {
		return true
	}
	host := target[strings.LastIndex(target, "/")+1:]
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
