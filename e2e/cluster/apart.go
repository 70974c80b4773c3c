package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Apart gives the process, from its next start on, a network namespace of its
// own, in which nothing is but these addresses of the loopback network. They lead
// to the same outside. So several of a program fit on one machine whose ports
// nobody can choose. It takes root.
func (p *Process) Apart(addresses ...string) { p.apart = addresses }

// Within gives the process, from its next start on, a root directory of its own,
// which may be that of others of the same program. The program is put there. So it
// finds what must have a fixed path. It takes root.
func (p *Process) Within(root string) error {
	inside := "/" + filepath.Base(p.path)
	err := os.Link(p.path, filepath.Join(root, inside))
	if errors.Is(err, unix.EXDEV) {
		var program []byte
		if program, err = os.ReadFile(p.path); err == nil {
			err = os.WriteFile(filepath.Join(root, inside), program, 0o755)
		}
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("root directory of %s: %w", p.name, err)
	}
	p.path, p.root = inside, root
	return nil
}

// apart is what leads out of a network namespace.
type apart struct {
	doors []net.Listener
	lines sync.WaitGroup
}

// leave the network of this thread for a new one: what the thread starts is in it.
// The thread must be locked and never be used for anything else.
func leave(addresses []string) (*apart, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return nil, fmt.Errorf("network namespace: lo: %w", err)
	}
	a := &apart{}
	for _, address := range addresses {
		door, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("network namespace: %w", err), a.close())
		}
		a.doors = append(a.doors, door)
		a.lines.Go(func() { a.serve(door, address) })
	}
	return a, nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // a datagram socket that was never used
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// serve who comes, from a thread that is outside.
func (a *apart) serve(door net.Listener, address string) {
	for {
		inside, err := door.Accept()
		if err != nil {
			return // it is closed
		}
		a.lines.Go(func() { join(inside, address) })
	}
}

// join a connection with one to the same address outside, until both have ended.
func join(inside net.Conn, address string) {
	defer inside.Close()
	outside, err := new(net.Dialer).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return // who is inside sees it closed
	}
	defer outside.Close()
	var there sync.WaitGroup
	there.Go(func() {
		_, _ = io.Copy(outside, inside) // whatever ends it ends both
		_ = outside.Close()
	})
	_, _ = io.Copy(inside, outside)
	_ = inside.Close()
	there.Wait()
}

func (a *apart) close() error {
	if a == nil {
		return nil
	}
	var all error
	for _, door := range a.doors {
		all = errors.Join(all, door.Close())
	}
	a.lines.Wait()
	return all
}
