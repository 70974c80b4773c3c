package cri

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// standIn is a stand-in of a container runtime: a real gRPC server with answers that a
// test chooses.
type standIn struct {
	runtime.UnimplementedRuntimeServiceServer
	runtime.UnimplementedImageServiceServer

	stats []*runtime.ContainerStats
	info  *runtime.ImageFsInfoResponse
	hangs chan struct{} // closed: it answers again; nil: it does not hang
	asked atomic.Int64

	mu    sync.Mutex // guards calls
	calls []string   // methods that were called
}

// call records the method of a call.
func (s *standIn) call(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	s.mu.Lock()
	s.calls = append(s.calls, info.FullMethod)
	s.mu.Unlock()
	return handle(ctx, request)
}

func (s *standIn) ListContainerStats(ctx context.Context, _ *runtime.ListContainerStatsRequest) (*runtime.ListContainerStatsResponse, error) {
	s.asked.Add(1)
	if s.hangs != nil {
		select {
		case <-s.hangs:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &runtime.ListContainerStatsResponse{Stats: s.stats}, nil
}

func (s *standIn) ImageFsInfo(context.Context, *runtime.ImageFsInfoRequest) (*runtime.ImageFsInfoResponse, error) {
	return s.info, nil
}

// host is a made-up root directory of a host with a runtime.
type host struct {
	root    string
	runtime *standIn
	server  *grpc.Server
	// listener of the server, and when it has ended.
	listener *net.UnixListener
	served   chan struct{}
}

const (
	socket   = "/run/containerd/containerd.sock"
	layerDir = "/var/lib/containerd/overlayfs"
)

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{root: t.TempDir(), runtime: &standIn{info: images(layerDir)}}
	require.NoError(t, os.MkdirAll(filepath.Join(h.root, layerDir), 0o755))
	h.listen(t)
	return h
}

// listen at the socket. /run is behind an absolute link, as /var/run is on hosts: it
// must be resolved below the host's root.
func (h *host) listen(t *testing.T) {
	t.Helper()
	dir := filepath.Join(h.root, "volatile", "containerd")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	if _, err := os.Lstat(filepath.Join(h.root, "run")); err != nil {
		require.NoError(t, os.Symlink("/volatile", filepath.Join(h.root, "run")))
	}
	t.Chdir(dir) // the path of a test's directory may be longer than a socket's may be
	var err error
	h.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: "containerd.sock", Net: "unix"})
	require.NoError(t, err)
	h.server = grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnaryInterceptor(h.runtime.call))
	runtime.RegisterRuntimeServiceServer(h.server, h.runtime)
	runtime.RegisterImageServiceServer(h.server, h.runtime)
	server, l, served := h.server, h.listener, make(chan struct{})
	h.served = served
	go func() {
		defer close(served)
		_ = server.Serve(l) // it ends with Stop
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
}

func images(dirs ...string) *runtime.ImageFsInfoResponse {
	return &runtime.ImageFsInfoResponse{ImageFilesystems: usages(dirs...)}
}

func usages(dirs ...string) (list []*runtime.FilesystemUsage) {
	for _, dir := range dirs {
		list = append(list, &runtime.FilesystemUsage{FsId: &runtime.FilesystemIdentifier{Mountpoint: dir}})
	}
	return list
}

// layer of a container of a pod, measured that long ago.
func layer(uid, dir string, bytes, files uint64, age time.Duration) *runtime.ContainerStats {
	return &runtime.ContainerStats{
		Attributes: &runtime.ContainerAttributes{Labels: map[string]string{"io.kubernetes.pod.uid": uid}},
		WritableLayer: &runtime.FilesystemUsage{
			Timestamp: time.Now().Add(-age).UnixNano(), FsId: &runtime.FilesystemIdentifier{Mountpoint: dir},
			UsedBytes: &runtime.UInt64Value{Value: bytes}, InodesUsed: &runtime.UInt64Value{Value: files},
		},
	}
}

func used(uid string, bytes, files uint64) snapshot.PodRootfs {
	return snapshot.PodRootfs{PodUID: uid, UsedBytes: snapshot.Some(bytes), FilesUsed: snapshot.Some(files)}
}

// reader of the host, asking as often as it looks.
func (h *host) reader(t *testing.T, log *strings.Builder) *Reader {
	t.Helper()
	return &Reader{
		Root:     func() (string, error) { return h.root, nil },
		Settings: func() (Config, bool) { return Config{Socket: socket, Every: time.Second, Timeout: time.Second}, true },
		Log:      slog.New(slog.NewTextHandler(log, nil)),
	}
}

// until waits until it holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline.Eventually(t, holds, 15*time.Second, 20*time.Millisecond, what)
}

// run until the test's end; the log may be read after it.
func run(t *testing.T, r *Reader) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		select {
		case err := <-done:
			assert.NoError(t, err)
		case <-deadline.After(10 * time.Second):
			t.Error("the reader does not end")
		}
	}
	t.Cleanup(end)
	return end
}

func TestReader(t *testing.T) {
	t.Run("adds up by pod", readerAddsUp)
	t.Run("two calls that read", readerTwoCalls)
	t.Run("runtime hangs", readerHangs)
	t.Run("runtime restarts", readerRestarts)
	t.Run("off", readerOff)
	t.Run("off and on during a read", readerOffAndOn)
	t.Run("hangs in the kernel", readerHangsInKernel)
	t.Run("errors", readerErrors)
}

func readerAddsUp(t *testing.T) {
	h := newHost(t)
	h.runtime.stats = []*runtime.ContainerStats{
		layer("b", layerDir, 10, 1, 0), layer("a", layerDir, 1<<30, 7, time.Minute), layer("a", layerDir, 5, 3, 0),
		{}, // no pod's
	}
	got := h.reader(t, &strings.Builder{}).read(t.Context(), Config{Socket: socket, Timeout: 10 * time.Second})
	require.NoError(t, got.err)
	assert.Equal(t, []snapshot.PodRootfs{used("a", 1<<30+5, 10), used("b", 10, 1)}, got.Pods)
	assert.Equal(t, layerDir, got.Mountpoint)
	assert.Positive(t, got.At)
	assert.Empty(t, got.Absent[snapshot.AbsentLayers])
	size, _ := got.SizeBytes.Get()
	available, known := got.AvailableBytes.Get()
	require.True(t, known)
	assert.Greater(t, size, available)
}

// Who may use the socket may start containers: nothing else is called.
func readerTwoCalls(t *testing.T) {
	h := newHost(t)
	require.NoError(t, h.reader(t, &strings.Builder{}).read(t.Context(), Config{Socket: socket, Timeout: 10 * time.Second}).err)
	h.server.Stop()
	<-h.served
	assert.Equal(t, []string{"/runtime.v1.RuntimeService/ListContainerStats", "/runtime.v1.ImageService/ImageFsInfo"}, h.runtime.calls)
}

func readerHangs(t *testing.T) {
	h := newHost(t)
	h.runtime.stats = []*runtime.ContainerStats{layer("a", layerDir, 5, 3, 0)}
	h.runtime.hangs = make(chan struct{})
	var log strings.Builder
	r := h.reader(t, &log)
	r.Settings = func() (Config, bool) {
		return Config{Socket: socket, Every: time.Second, Timeout: 3 * time.Second}, true
	} // time to connect
	end := run(t, r)
	until(t, "it says that the runtime does not answer", func() bool {
		n := r.Newest()
		return n != nil && strings.Contains(n.Absent[snapshot.AbsentRootfs], socket+": ListContainerStats: DeadlineExceeded")
	})
	assert.Zero(t, r.Newest().At)
	close(h.runtime.hangs)
	until(t, "it has an answer", func() bool { return r.Newest().At > 0 })
	assert.Equal(t, []snapshot.PodRootfs{used("a", 5, 3)}, r.Newest().Pods)
	assert.Empty(t, r.Newest().Absent)
	end()
	assert.Equal(t, 1, strings.Count(log.String(), "cannot ask the container runtime"), "%s", log.String())
	assert.Contains(t, log.String(), "the container runtime answers again")
}

// A runtime that restarts makes another socket at the same path. What it said before
// stays, with the reason why there is nothing newer.
func readerRestarts(t *testing.T) {
	h := newHost(t)
	h.runtime.stats = []*runtime.ContainerStats{layer("a", layerDir, 5, 3, 0)}
	r := h.reader(t, &strings.Builder{})
	run(t, r)
	until(t, "it has an answer", func() bool { return r.Newest() != nil && r.Newest().At > 0 })
	h.server.Stop()
	<-h.served
	until(t, "it says that there is no socket", func() bool {
		return strings.Contains(r.Newest().Absent[snapshot.AbsentRootfs], "no such file")
	})
	was := r.Newest()
	assert.Equal(t, []snapshot.PodRootfs{used("a", 5, 3)}, was.Pods)
	h.runtime.stats = []*runtime.ContainerStats{layer("a", layerDir, 6, 3, 0)}
	h.listen(t)
	until(t, "it has another answer", func() bool { return r.Newest().At > was.At })
	assert.Equal(t, []snapshot.PodRootfs{used("a", 6, 3)}, r.Newest().Pods)
	assert.Empty(t, r.Newest().Absent)
}

func readerOff(t *testing.T) {
	h := newHost(t)
	var on atomic.Bool
	on.Store(true)
	r := h.reader(t, &strings.Builder{})
	r.Settings = func() (Config, bool) {
		return Config{Socket: socket, Every: time.Second, Timeout: time.Second}, on.Load()
	}
	run(t, r)
	until(t, "it has an answer", func() bool { return r.Newest() != nil })
	on.Store(false)
	until(t, "it has none", func() bool { return r.Newest() == nil })
	asked := h.runtime.asked.Load()
	on.Store(true)
	until(t, "it asks again", func() bool { return h.runtime.asked.Load() > asked })
}

// A read that began before the rule was switched off has its whole time.
func readerOffAndOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		var on atomic.Bool
		on.Store(true)
		r := &Reader{
			Root: func() (string, error) { time.Sleep(5 * time.Second); return "", errors.New("away") },
			Settings: func() (Config, bool) {
				return Config{Socket: socket, Every: time.Minute, Timeout: 10 * time.Second}, on.Load()
			},
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		}
		ctx, end := context.WithCancel(t.Context())
		go func() { assert.NoError(t, r.Run(ctx)) }()
		for _, is := range []bool{false, true} {
			time.Sleep(1500 * time.Millisecond)
			on.Store(is)
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		assert.Nil(t, r.Newest(), "it may still answer")
		assert.Empty(t, log.String())
		end()
		time.Sleep(5 * time.Second) // the read ends
	})
}

// A read that hangs where no deadline reaches delays neither the end nor the settings,
// and there is no second one.
func readerHangsInKernel(t *testing.T) {
	h := newHost(t)
	hangs, entered := make(chan struct{}), atomic.Int64{}
	defer close(hangs)
	var log strings.Builder
	r := h.reader(t, &log)
	r.Root = func() (string, error) {
		entered.Add(1)
		<-hangs
		return "", os.ErrClosed
	}
	end := run(t, r)
	until(t, "it says so", func() bool {
		n := r.Newest()
		return n != nil && strings.Contains(n.Absent[snapshot.AbsentRootfs], socket+" has not answered within 1s")
	})
	was := r.Newest()
	until(t, "it looks again", func() bool { return r.Newest() != was })
	assert.EqualValues(t, 1, entered.Load())
	end()
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), "it is logged once: %s", log.String())
}

func readerErrors(t *testing.T) {
	for why, change := range map[string]func(*testing.T, *host){
		"/run/containerd/containerd.sock: the runtime names no filesystem for containers or images": func(_ *testing.T, h *host) {
			h.runtime.info = &runtime.ImageFsInfoResponse{}
		},
		"filesystem of containers: /gone: no such file or directory": func(_ *testing.T, h *host) { h.runtime.info = images("/gone") },
		"connection refused": func(_ *testing.T, h *host) { // its file is left, as after a crash
			h.listener.SetUnlinkOnClose(false)
			h.server.Stop()
			<-h.served
		},
		"no such file": func(_ *testing.T, h *host) {
			h.server.Stop()
			<-h.served
		},
		"ResourceExhausted": func(_ *testing.T, h *host) { // larger than the kubelet would take
			s := layer("a", layerDir, 1, 1, 0)
			s.Attributes.Annotations = map[string]string{"x": strings.Repeat("x", maxAnswer)}
			h.runtime.stats = []*runtime.ContainerStats{s}
		},
	} {
		t.Run(why, func(t *testing.T) {
			h := newHost(t)
			change(t, h)
			got := h.reader(t, &strings.Builder{}).read(t.Context(), Config{Socket: socket, Timeout: 10 * time.Second})
			require.ErrorContains(t, got.err, why)
		})
	}
}
