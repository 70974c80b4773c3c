package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// maxRead is the largest answer that is read at all, in bytes: more than the
// agent takes, so that its size can be told.
const maxRead = 64 << 20

// connection is one connection to the plugin; it never reconnects.
type connection struct {
	*grpc.ClientConn
	peer   *unix.Ucred
	closed chan struct{}
}

// watchedConn signals when it is closed; gRPC closes it as soon as it reads EOF.
type watchedConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (w *watchedConn) Close() error {
	err := error(nil)
	w.once.Do(func() {
		err = w.Conn.Close()
		close(w.closed)
	})
	return err
}

// registrationTimeout bounds connecting and each call of a registration, as in
// the agent.
const registrationTimeout = time.Second

func connect(ctx context.Context, path string) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, registrationTimeout)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	peer, err := peerOf(raw)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: identify the listener: %w", path, err), raw.Close())
	}
	w := &watchedConn{Conn: raw, closed: make(chan struct{})}
	only := make(chan net.Conn, 1)
	only <- w
	c, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case c := <-only:
				return c, nil
			default:
				return nil, errors.New("the connection has ended")
			}
		}),
		grpc.WithIdleTimeout(0), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxRead)))
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	c.Connect()
	return &connection{ClientConn: c, peer: peer, closed: w.closed}, nil
}

// ended reports whether the connection has ended, and waits for that for a
// moment: a call can fail shortly before gRPC closes it.
func (c *connection) ended(wait time.Duration) bool {
	select {
	case <-c.closed:
		return true
	case <-time.After(wait):
	}
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// peerOf returns the process that listens (SO_PEERCRED, unix(7)).
func peerOf(c net.Conn) (cred *unix.Ucred, err error) {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(err, controlErr)
}

// bytesCodec sends bytes as they are, as a message of any kind.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (bytesCodec) Unmarshal([]byte, any) error { return nil }
