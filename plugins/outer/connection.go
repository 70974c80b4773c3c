package outer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// registrationTimeout bounds each call of a registration, and connecting.
	registrationTimeout = time.Second
	// maxAnswer bounds one answer in bytes: enough to name every pod of a dense
	// node.
	maxAnswer = 8 << 20
	// maxRegistration bounds an answer of the calls of a registration, which every socket is
	// asked: its listener may be a user that is not admitted.
	maxRegistration = 64 << 10
)

// connection is one connection to a socket. It never reconnects: the listener may be
// another process then.
type connection struct {
	*grpc.ClientConn
	// peer is the process that listened when the connection was made, and file
	// its socket.
	peer *unix.Ucred
	file fileIdentity
	raw  *watched
}

var errDisconnected = errors.New("the plugin closed its connection")

func connect(ctx context.Context, path string) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, registrationTimeout)
	defer cancel()
	held, err := holdSocket(path)
	if err != nil {
		return nil, err
	}
	c, err := held.dial(ctx)
	file := held.file
	held.close()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", rootCause(err))
	}
	raw := &watched{Conn: c, closed: make(chan struct{})}
	peer, err := peerCredentials(c)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("identify the listener (SO_PEERCRED): %w", err), raw.Close())
	}
	only := make(chan net.Conn, 1)
	only <- raw
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), // gRPC's own default on a Unix socket
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case c := <-only:
				return c, nil
			default:
				return nil, errDisconnected
			}
		}),
		grpc.WithIdleTimeout(0), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.ForceCodecV2(newAnswerCodec())))
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return &connection{ClientConn: conn, peer: peer, file: file, raw: raw}, nil
}

// heldSocket is a socket's file that is held open, so that what is connected to is what was
// identified: who may write to the directory may put a link in its place at any moment.
type heldSocket struct {
	fd   int
	file fileIdentity
}

func holdSocket(path string) (heldSocket, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return heldSocket{}, fmt.Errorf("connect: %w", err)
	}
	file, is := identifyAt(fd, "", unix.AT_EMPTY_PATH)
	if !is {
		return heldSocket{}, errors.Join(errSocketReplaced, unix.Close(fd))
	}
	return heldSocket{fd, file}, nil
}

// dial connects to who listens there.
func (h heldSocket) dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", h.fd))
}

func (h heldSocket) close() { _ = unix.Close(h.fd) } // nothing was written to it

// peerID identifies the listener by what the kernel proves: it changes when a
// plugin restarts, and stays when the agent reconnects.
func (l *connection) peerID() string { return fmt.Sprintf("%d/%d/%s", l.peer.Uid, l.peer.Pid, l.file) }

// closed is closed when either side has ended the connection.
func (l *connection) closed() <-chan struct{} { return l.raw.closed }

// Close ends the connection.
func (l *connection) Close() error {
	return errors.Join(l.ClientConn.Close(), l.raw.Close())
}

// watched signals when it is closed; gRPC closes it as soon as it reads EOF.
type watched struct {
	net.Conn
	once   sync.Once
	err    error
	closed chan struct{}
}

// Close closes it once, however often it is called.
func (w *watched) Close() error {
	w.once.Do(func() {
		w.err = w.Conn.Close()
		close(w.closed)
	})
	return w.err
}

// peerCredentials returns the process that called listen at the other end
// (SO_PEERCRED, unix(7)).
func peerCredentials(c net.Conn) (*unix.Ucred, error) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil, errors.New("not a socket")
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, credErr
}

// rootCause drops the wrapping of net and os, since our error names the path
// already.
func rootCause(err error) error {
	if sys, ok := errors.AsType[*os.SyscallError](err); ok {
		return sys.Err
	}
	return err
}
