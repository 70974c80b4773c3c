// Package cri asks the container runtime of the node, containerd or CRI-O, what the
// root filesystems of pods use: the writable layers of their containers. It speaks the
// Container Runtime Interface (CRI) over the runtime's local Unix socket, as the kubelet
// does, and reads only.
//
// # Usage
//
//	r := &cri.Reader{Root: host.Root, Settings: settings, Log: log}
//	go r.Run(ctx)
//	sample.Rootfs = r.Newest()
//
// # Concurrency
//
// Newest may be called from any goroutine and waits for nothing. A read that hangs in
// the kernel holds one goroutine until the kernel returns; there is never a second one.
package cri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// maxAnswer bounds an answer in bytes, as the kubelet does.
const maxAnswer = 16 << 20

// Reader asks the runtime while it is told to.
type Reader struct {
	// Root is where the host's root directory is reached.
	Root func() (string, error)
	// Settings are those in force; false: nothing is asked.
	Settings func() (Config, bool)
	Log      *slog.Logger

	newest atomic.Pointer[snapshot.Rootfs]
	logged string // the problem that was logged last
}

// Newest is the newest answer, with why there is none since; nil while nothing is
// asked, and before the first answer.
func (r *Reader) Newest() *snapshot.Rootfs { return r.newest.Load() }

// look is how often the settings are looked at.
const look = time.Second

// Run asks until ctx ends. It does not wait for a read that hangs.
func (r *Reader) Run(ctx context.Context) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	var asked time.Time
	var answer chan result // of the read that runs; nil: none does
	for {
		c, on := r.Settings()
		switch {
		case !on:
			r.newest.Store(nil)
			if answer == nil {
				asked = time.Time{}
			}
		case answer != nil:
			if time.Since(asked) > c.Timeout+look {
				r.fail(fmt.Errorf("%s has not answered within %s", c.Socket, c.Timeout))
			}
		case time.Since(asked) >= c.Every:
			asked, answer = time.Now(), make(chan result, 1)
			go func(to chan<- result) { to <- r.read(ctx, c) }(answer)
		}
		select {
		case <-ctx.Done():
			return nil
		case got := <-answer:
			answer = nil
			if _, on := r.Settings(); on {
				r.store(got)
			}
		case <-ticker.C:
		}
	}
}

// result of a read.
type result struct {
	*snapshot.Rootfs
	err error
}

func (r *Reader) store(got result) {
	if got.err != nil {
		r.fail(got.err)
		return
	}
	r.newest.Store(got.Rootfs)
	r.log("")
}

// fail keeps the values of the last answer, with the reason why there is no newer one.
func (r *Reader) fail(err error) {
	next := snapshot.Rootfs{}
	if was := r.newest.Load(); was != nil {
		next = *was
	}
	absent := snapshot.Absent{snapshot.AbsentRootfs: err.Error()}
	for what, why := range next.Absent {
		if what != snapshot.AbsentRootfs {
			absent[what] = why
		}
	}
	next.Absent = absent
	r.newest.Store(&next)
	r.log(err.Error())
}

// log logs a problem once until it changes or ends.
func (r *Reader) log(problem string) {
	if problem == r.logged {
		return
	}
	if problem != "" {
		r.Log.Warn("cannot ask the container runtime; root filesystems of pods are not judged: see containerRuntime.socket and plugins.rootfsOveruse", "problem", problem)
	} else {
		r.Log.Info("the container runtime answers again")
	}
	r.logged = problem
}

// read asks the runtime once and reads how full its filesystem is.
func (r *Reader) read(ctx context.Context, c Config) result {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	root, err := r.Root()
	if err != nil {
		return result{err: fmt.Errorf("host's root: %w", err)}
	}
	stats, info, err := ask(ctx, root, c.Socket)
	if err != nil {
		return result{err: fmt.Errorf("%s: %w", c.Socket, err)}
	}
	out := &snapshot.Rootfs{}
	all, judged := filesystems(info)
	if judged == "" {
		return result{err: fmt.Errorf("%s: the runtime names no filesystem for containers or images", c.Socket)}
	}
	out.Mountpoint = judged
	elsewhere, err := examine(root, all, out)
	if err != nil {
		return result{err: fmt.Errorf("filesystem of containers: %w", err)}
	}
	var unknown layers
	out.Pods, unknown = podsOf(stats.GetStats(), elsewhere, time.Now())
	if why := unknown.reason(); why != "" {
		out.Absent.Because(snapshot.AbsentLayers, why)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return result{err: fmt.Errorf("read CLOCK_MONOTONIC: %w", err)}
	}
	out.At = time.Duration(now.Nano())
	return result{Rootfs: out}
}

// ask makes the two calls, over a connection of their own.
func ask(ctx context.Context, root, socket string) (*runtime.ListContainerStatsResponse, *runtime.ImageFsInfoResponse, error) {
	conn, err := grpc.NewClient("passthrough:///runtime",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), // gRPC's own default on a Unix socket
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, root, socket) }),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	stats, err := runtime.NewRuntimeServiceClient(conn).ListContainerStats(ctx, &runtime.ListContainerStatsRequest{})
	if err != nil {
		return nil, nil, fmt.Errorf("ListContainerStats: %w", plain(err))
	}
	info, err := runtime.NewImageServiceClient(conn).ImageFsInfo(ctx, &runtime.ImageFsInfoRequest{})
	if err != nil {
		return nil, nil, fmt.Errorf("ImageFsInfo: %w", plain(err))
	}
	return stats, info, nil
}

// plain is the message of an error of gRPC with its code.
func plain(err error) error {
	s := status.Convert(err)
	return fmt.Errorf("%s: %s", s.Code(), s.Message())
}

// dial connects to a socket below the host's root. Links are resolved there, and the
// file is opened first: its path may be longer than a Unix socket's may be.
func dial(ctx context.Context, root, socket string) (net.Conn, error) {
	fd, err := probes.OpenBelow(root, socket)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	c, err := new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
	if cause, is := errors.AsType[unix.Errno](err); is {
		return nil, cause
	}
	return c, err
}

// examine reads how full the first directory's filesystem is into out, and returns
// which of the others are on another filesystem.
func examine(root string, all []string, out *snapshot.Rootfs) (elsewhere []string, err error) {
	var first uint64
	for i, dir := range all {
		device, err := examineOne(root, dir, i == 0, out)
		switch {
		case i == 0 && err != nil:
			return nil, fmt.Errorf("%s: %w", dir, err)
		case i == 0:
			first = device
		case err != nil || device != first:
			elsewhere = append(elsewhere, dir)
		}
	}
	return elsewhere, nil
}

func examineOne(root, dir string, full bool, out *snapshot.Rootfs) (device uint64, err error) {
	fd, err := probes.OpenBelow(root, dir)
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return 0, err
	}
	if full {
		err = probes.Statfs(fd, out)
	}
	return s.Dev, err
}
