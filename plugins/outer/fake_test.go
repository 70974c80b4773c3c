package outer

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/katalyst"
	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// fake is a plugin with a real socket.
type fake struct {
	wire.UnimplementedEvictionPluginServer
	registration.UnimplementedRegistrationServer

	info registration.PluginInfo
	// token is what GetToken answers; empty: it has no such method, unless it shows
	// that it has none.
	token      string
	showsEmpty bool
	// refuseInfo is what GetInfo fails with once there is one
	refuseInfo atomic.Pointer[status.Status]
	// answers, nil for a method that it does not have
	threshold func(*wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error)
	top       func(*wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error)
	named     func(*wire.GetEvictPodsRequest) (*wire.GetEvictPodsResponse, error)

	mu     sync.Mutex // guards both
	told   []*registration.RegistrationStatus
	called []string
	server *grpc.Server

	serving sync.WaitGroup
	cleaned sync.Once
}

func newFake(name string) *fake {
	return &fake{info: registration.PluginInfo{Type: wire.PluginType, Name: name, SupportedVersions: []string{wire.Version}}}
}

// serve listens at a path, which a plugin that was killed may have left behind.
func (f *fake) serve(t testing.TB, path string) {
	t.Helper()
	_ = os.Remove(path) // there may be none
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	f.serveOn(t, l)
}

func (f *fake) serveOn(t testing.TB, l net.Listener) {
	t.Helper()
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // as one that is killed
	}
	f.server = grpc.NewServer()
	wire.RegisterEvictionPluginServer(f.server, f)
	registration.RegisterRegistrationServer(f.server, f)
	server := f.server
	f.serving.Go(func() { _ = server.Serve(l) })
	f.cleaned.Do(func() {
		t.Cleanup(func() { f.server.Stop(); f.serving.Wait() })
	})
}

// kill leaves the socket behind.
func (f *fake) kill() { f.server.Stop() }

func (f *fake) call(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called = append(f.called, name)
}

func (f *fake) calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.called...)
}

// forget what was called until now.
func (f *fake) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called, f.told = nil, nil
}

// forgetRegistration waits for its last call.
func (f *fake) forgetRegistration(t testing.TB) {
	t.Helper()
	eventually(t, "told", func() bool { return len(f.statuses()) == 1 })
	f.forget()
}

func (f *fake) statuses() []*registration.RegistrationStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*registration.RegistrationStatus(nil), f.told...)
}

// registered reports whether that is the last status it received.
func (f *fake) registered() bool {
	all := f.statuses()
	return len(all) > 0 && all[len(all)-1].GetPluginRegistered()
}

func (f *fake) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	f.call("GetInfo")
	if s := f.refuseInfo.Load(); s != nil {
		return nil, s.Err()
	}
	return &registration.PluginInfo{
		Type: f.info.Type, Name: f.info.Name, Endpoint: f.info.Endpoint, SupportedVersions: f.info.SupportedVersions,
	}, nil
}

func (f *fake) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	f.call("Notify")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, s)
	return &registration.RegistrationStatusResponse{}, nil
}

var errNoMethod = status.Error(codes.Unimplemented, "no such method")

func (f *fake) GetToken(context.Context, *wire.Empty) (*wire.GetTokenResponse, error) {
	f.call("GetToken")
	if f.token == "" && !f.showsEmpty {
		return nil, errNoMethod
	}
	return &wire.GetTokenResponse{Token: f.token}, nil
}

func (f *fake) ThresholdMet(_ context.Context, r *wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error) {
	f.call("ThresholdMet")
	if f.threshold == nil {
		return nil, errNoMethod
	}
	return f.threshold(r)
}

func (f *fake) GetTopEvictionPods(_ context.Context, r *wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
	f.call("GetTopEvictionPods")
	if f.top == nil {
		return nil, errNoMethod
	}
	return f.top(r)
}

func (f *fake) GetEvictPods(_ context.Context, r *wire.GetEvictPodsRequest) (*wire.GetEvictPodsResponse, error) {
	f.call("GetEvictPods")
	if f.named == nil {
		return nil, errNoMethod
	}
	return f.named(r)
}

// pluginEnv is a host with a directory of its own.
type pluginEnv struct {
	*Host
	t      testing.TB
	dir    string
	config Config
	ended  chan error
	end    context.CancelFunc
}

func newPluginEnv(t testing.TB, change ...func(*Config)) *pluginEnv {
	t.Helper()
	w := &pluginEnv{t: t, dir: socketDir(t), config: DefaultConfig(), ended: make(chan error, 1)}
	w.config.Dirs = []string{w.dir}
	for _, c := range change {
		c(&w.config)
	}
	w.Host = &Host{Settings: func() Config { return w.config }, Procfs: "/proc", Log: slog.New(slog.DiscardHandler)}
	return w
}

// socketDir is short: a socket's path has 107 bytes at most.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "plugins-") //nolint:usetesting // the test's own directory has its long name
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (w *pluginEnv) run() *pluginEnv {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) // which ends after the cleanups of the plugins begin
	w.end = cancel
	go func() { w.ended <- w.Host.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		select {
		case err := <-w.ended:
			require.NoError(w.t, err)
		case <-deadline.After(10 * time.Second):
			require.Fail(w.t, "the host does not end")
		}
	})
	return w
}

func (w *pluginEnv) path(name string) string { return filepath.Join(w.dir, name) }

// names of the plugins that are registered.
func (w *pluginEnv) names() []string {
	list := []string{}
	for _, p := range w.registry.plugins() {
		list = append(list, p.name)
	}
	return list
}

func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	deadline.Eventually(t, so, 20*time.Second, 5*time.Millisecond, what)
}

func (w *pluginEnv) waitFor(names ...string) {
	w.t.Helper()
	deadline.Within(w.t, 20*time.Second, fmt.Sprint("registered are ", names), func() error {
		if got := w.names(); !slices.Equal(got, names) {
			return fmt.Errorf("%v: %+v", got, w.Status(time.Now()))
		}
		return nil
	})
}

// noGrace makes every threshold due at once.
type noGrace struct{}

func (noGrace) Reported(plugins.Verdict, time.Time) time.Time { return time.Time{} }
func (noGrace) Missed(string)                                 {}
func (noGrace) Registered(string, string, time.Time)          {}

// round asks with pods of these UIDs.
func (w *pluginEnv) round(pods ...string) []plugins.Verdict {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), w.config.Deadline)
	defer cancel()
	return w.Ask(ctx, Round{Time: time.Now(), Pods: wirePods(w.t, pods...), Graces: noGrace{}, MaxAge: 15 * time.Second})
}

// pending reports whether an answer of the plugin is ready that no round has taken.
func (w *pluginEnv) pending(name string) bool {
	for _, p := range w.registry.plugins() {
		if p.name == name {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.pending
		}
	}
	return false
}

// takeAnswers returns what a round would take now, without a call.
func (w *pluginEnv) takeAnswers() (list []plugins.Verdict) {
	for _, p := range w.registry.plugins() {
		list = append(list, p.takeVerdicts(Round{Time: time.Now(), MaxAge: time.Minute})...)
	}
	return list
}

func wirePods(t testing.TB, uids ...string) []katalyst.Pod {
	var list []katalyst.Pod
	for _, uid := range uids {
		list = append(list, katalyst.Pod{UID: uid, Wire: podBytes(t, uid)})
	}
	return list
}

func podBytes(t testing.TB, uid string) []byte {
	t.Helper()
	raw, err := (&corev1.Pod{
		ObjectMeta: objectMeta(uid),
		Spec:       corev1.PodSpec{NodeName: "n"},
	}).Marshal()
	require.NoError(t, err)
	return raw
}

func objectMeta(uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "pod-" + uid, Namespace: "default", UID: types.UID(uid)}
}
