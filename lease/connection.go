package lease

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const (
	// connectTime bounds making a TCP connection.
	connectTime = 2 * time.Second
	// handshakeTime bounds the TLS handshake. It is long: a busy API server is slow
	// at it, and a retry would make it busier.
	handshakeTime = maxTimeout
	// userTimeout is TCP_USER_TIMEOUT: how long sent data may be unacknowledged.
	userTimeout = 3 * time.Second
	// deadAfter is how long sent data may be unacknowledged before the connection
	// counts as dead.
	deadAfter = 2 * time.Second
)

// Connection is a heartbeat's own connection to the API server: one at a time, not shared.
// It is opened and closed only by dial and Close, never implicitly by a request. Neither
// waits for the disk.
type Connection struct {
	// Dials counts the attempts to connect since the start.
	Dials atomic.Uint64

	credentials credentials
	address     string
	resolver    *net.Resolver // nil: the process's
	known       string        // the last address at which the API server proved its certificate; dial's alone
	leases      rest.Interface
	nodes       rest.Interface

	mu   sync.Mutex // guards conn
	conn *conn      // nil: not connected
}

// conn is one connection.
type conn struct {
	tcp *net.TCPConn
	h2  *http2.ClientConn //nolint:staticcheck // net/http's own has no Ping
}

// NewConnection prepares a connection to the API server of the configuration how; it does
// not connect.
func NewConnection(how *rest.Config) (*Connection, error) {
	how = rest.CopyConfig(how)
	l := &Connection{credentials: credentials{read: func() (*identity, error) { return readIdentity(how) }}}
	config := rest.CopyConfig(how)
	config.BearerToken, config.BearerTokenFile = "", "" // RoundTrip adds the token
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS = -1 // the rhythm limits the rate, not a queue in the client
	config.WarningHandler = rest.NoWarnings{}
	at, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	if l.address, err = addressOf(at); err != nil {
		return nil, err
	}
	wrapped, err := rest.HTTPWrappersForConfig(config, l)
	if err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	client := &http.Client{Transport: wrapped}
	leases, err := coordinationv1client.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	nodes, err := corev1client.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	l.leases, l.nodes = leases.RESTClient(), nodes.RESTClient()
	l.credentials.reread() // they are there when the first attempt is due
	return l, nil
}

func addressOf(u *url.URL) (string, error) {
	if u.Scheme != "https" {
		return "", fmt.Errorf("heartbeat: %s: want an https URL", u)
	}
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "443"), nil
	}
	return u.Host, nil
}

// usable reports whether there is a usable connection.
func (l *Connection) usable() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil && l.conn.h2.CanTakeNewRequest()
}

// dial opens a connection and closes the one before.
func (l *Connection) dial(ctx context.Context) error {
	l.Close()
	l.Dials.Add(1)
	made, err := l.connect(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = made
	return nil
}

func (l *Connection) connect(ctx context.Context) (*conn, error) {
	is, err := l.credentials.current(ctx)
	if err != nil {
		return nil, err
	}
	config := is.tls.Clone()
	config.NextProtos = []string{http2.NextProtoTLS}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(l.address) // joined by addressOf
	}
	raw, err := l.connectTCP(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	secure := tls.Client(raw, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("tls %s: %w", l.address, err), raw.Close())
	}
	if secure.ConnectionState().NegotiatedProtocol != http2.NextProtoTLS {
		return nil, errors.Join(fmt.Errorf("%s does not support HTTP/2", l.address), raw.Close())
	}
	h2, err := (&http2.Transport{}).NewClientConn(secure) //nolint:staticcheck // see conn
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	l.known = raw.RemoteAddr().String()
	return &conn{tcp: raw.(*net.TCPConn), h2: h2}, nil
}

// connectTCP connects to the API server; while its name cannot be resolved, to the address
// that it had before.
func (l *Connection) connectTCP(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{Timeout: connectTime, Control: setUserTimeout, Resolver: l.resolver}
	raw, err := dialer.DialContext(ctx, "tcp", l.address)
	if _, unresolved := errors.AsType[*net.DNSError](err); unresolved && l.known != "" {
		return dialer.DialContext(ctx, "tcp", l.known)
	}
	return raw, err
}

func setUserTimeout(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
	return errors.Join(err, failed)
}

// Close closes the connection, if there is one.
func (l *Connection) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return
	}
	_ = l.conn.tcp.SetLinger(0) // discard unsent data
	_ = l.conn.tcp.Close()      // first: closing TLS would wait for a write
	_ = l.conn.h2.Close()
	l.conn = nil
}

// errNotConnected is for a request without a connection.
var errNotConnected = errors.New("no connection")

// RoundTrip sends a request on the connection, with the token, and never dials.
func (l *Connection) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	c := l.conn
	l.mu.Unlock()
	if c == nil {
		return nil, errNotConnected
	}
	is, err := l.credentials.current(r.Context())
	if err != nil {
		return nil, err
	}
	if is.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+is.token)
	}
	return c.h2.RoundTrip(r)
}

// monitor sends an HTTP/2 ping when half of wait is over. The returned function stops
// that and returns the health of the connection.
func (l *Connection) monitor(ctx context.Context, wait time.Duration) (end func() health) {
	l.mu.Lock()
	c := l.conn
	l.mu.Unlock()
	if c == nil {
		return func() health { return health{} }
	}
	ctx, cancel := context.WithCancel(ctx)
	var ponged atomic.Bool
	done := make(chan struct{})
	timer := time.AfterFunc(wait/2, func() {
		defer close(done)
		ponged.Store(c.h2.Ping(ctx) == nil)
	})
	return func() health {
		h := c.health()
		cancel()
		if !timer.Stop() {
			<-done
		}
		h.pinged = ponged.Load()
		return h
	}
}

// health is the state of a connection whose answer is late.
type health struct {
	open bool
	// pinged: a ping was answered since the request was sent.
	pinged bool
	// unacked: there is unacknowledged data (TCP_INFO); acked is the time since the
	// last acknowledgement.
	unacked bool
	acked   time.Duration
}

// dead reports whether the connection counts as dead, sent after its request.
func (h health) dead(sent time.Duration) bool {
	return !h.open || !h.pinged || h.unacked && min(h.acked, sent) >= deadAfter
}

func (c *conn) health() health {
	h := health{open: c.h2.CanTakeNewRequest()}
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return health{} // it is closed
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			h.unacked, h.acked = info.Unacked > 0, time.Duration(info.Last_ack_recv)*time.Millisecond
		}
	})
	return h
}
