package kit_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
)

// plugin answers as a test sets it, and records its requests.
type plugin struct {
	threshold kit.Threshold
	err       error
	named     kit.Named
	evictions kit.Evictions

	shown []*corev1.Pod
	ask   kit.Ask
}

func (p *plugin) Threshold(_ context.Context, pods []*corev1.Pod) (kit.Threshold, error) {
	p.shown = pods
	return p.threshold, p.err
}

func (p *plugin) Top(_ context.Context, a kit.Ask) (kit.Named, error) {
	p.ask = a
	return p.named, p.err
}

func (p *plugin) Evict(_ context.Context, pods []*corev1.Pod) (kit.Evictions, error) {
	p.shown = pods
	return p.evictions, p.err
}

// watcher has nothing but a threshold.
type watcher struct{}

func (watcher) Threshold(context.Context, []*corev1.Pod) (kit.Threshold, error) {
	return kit.Threshold{}, nil
}

func TestKitServesBothServices(t *testing.T) {
	_, conn := serve(t, &kit.Server{Name: "full", Plugin: watcher{}, Token: "secret"})
	info, err := registration.NewRegistrationClient(conn).GetInfo(t.Context(), &registration.InfoRequest{})
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(&registration.PluginInfo{
		Type: "EvictionPlugin", Name: "full", SupportedVersions: []string{"v1alpha1"},
	}, info, protocmp.Transform()))
	token, err := v1alpha1.NewEvictionPluginClient(conn).GetToken(t.Context(), &v1alpha1.Empty{})
	require.NoError(t, err)
	assert.Equal(t, "secret", token.GetToken())
}

func TestKitLogsRegistration(t *testing.T) {
	log, conn := serve(t, &kit.Server{Name: "full", Plugin: watcher{}})
	host := registration.NewRegistrationClient(conn)
	_, err := host.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{Error: "version v9 is not known"})
	require.NoError(t, err)
	assert.Contains(t, log.String(), `level=WARN msg="the agent refused this plugin" plugin=full reason="version v9 is not known"`)
	_, err = host.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{PluginRegistered: true})
	require.NoError(t, err)
	assert.Contains(t, log.String(), `level=INFO msg="registered with the agent" plugin=full`)
}

func TestKitThreshold(t *testing.T) {
	a, b := pod("a"), pod("b")
	p := &plugin{threshold: kit.Threshold{
		Level: kit.Hard, Observed: 0.96, Limit: 0.95, Scope: "sda", Grace: 1500 * time.Millisecond,
		Condition:  &kit.Condition{Name: "Full", Effects: []corev1.TaintEffect{corev1.TaintEffectNoSchedule}},
		Candidates: []*corev1.Pod{b},
	}}
	_, conn := serve(t, &kit.Server{Name: "full", Plugin: p})
	got, err := v1alpha1.NewEvictionPluginClient(conn).ThresholdMet(t.Context(),
		&v1alpha1.GetThresholdMetRequest{ActivePods: wire(t, a, b)})
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(&v1alpha1.ThresholdMetResponse{
		ThresholdValue: 0.95, ObservedValue: 0.96, ThresholdOperator: v1alpha1.ThresholdOperator_GREATER_THAN,
		MetType: v1alpha1.ThresholdMetType_HARD_MET, EvictionScope: "sda", GracePeriodSeconds: 2,
		Condition:     &v1alpha1.Condition{Effects: []string{"NoSchedule"}, ConditionName: "Full", MetCondition: true},
		CandidatePods: wire(t, b),
	}, got, protocmp.Transform()))
	assert.Empty(t, cmp.Diff([]*corev1.Pod{a, b}, p.shown))
}

func TestKitConditionMetWithLevel(t *testing.T) {
	for level, want := range map[kit.Level]v1alpha1.ThresholdMetType{
		kit.None: v1alpha1.ThresholdMetType_NOT_MET, kit.Soft: v1alpha1.ThresholdMetType_SOFT_MET, kit.Hard: v1alpha1.ThresholdMetType_HARD_MET,
	} {
		p := &plugin{threshold: kit.Threshold{Level: level, Below: true, Condition: &kit.Condition{Name: "Full", CNR: true}}}
		_, conn := serve(t, &kit.Server{Name: "full", Plugin: p})
		got, err := v1alpha1.NewEvictionPluginClient(conn).ThresholdMet(t.Context(), &v1alpha1.GetThresholdMetRequest{})
		require.NoError(t, err)
		assert.Equal(t, want, got.GetMetType())
		assert.Equal(t, level > kit.None, got.GetCondition().GetMetCondition())
		assert.Equal(t, v1alpha1.ConditionType_CNR_CONDITION, got.GetCondition().GetConditionType())
		assert.Equal(t, v1alpha1.ThresholdOperator_LESS_THAN, got.GetThresholdOperator())
	}
}

func TestConditionEffects(t *testing.T) {
	for name, row := range map[string]struct {
		level   kit.Level
		effects []corev1.TaintEffect
		want    []string
	}{
		"soft":             {kit.Soft, nil, []string{"PreferNoSchedule"}},
		"hard":             {kit.Hard, nil, []string{"NoSchedule"}},
		"not met":          {kit.None, nil, nil},
		"no taint":         {kit.Hard, []corev1.TaintEffect{}, nil},
		"its own":          {kit.Hard, []corev1.TaintEffect{corev1.TaintEffectPreferNoSchedule}, []string{"PreferNoSchedule"}},
		"of no known kind": {kit.Hard, []corev1.TaintEffect{"Sometimes"}, []string{"Sometimes"}}, // the agent refuses it
	} {
		t.Run(name, func(t *testing.T) {
			p := &plugin{threshold: kit.Threshold{Level: row.level, Condition: &kit.Condition{Name: "Full", Effects: row.effects}}}
			_, conn := serve(t, &kit.Server{Name: "full", Plugin: p})
			got, err := v1alpha1.NewEvictionPluginClient(conn).ThresholdMet(t.Context(), &v1alpha1.GetThresholdMetRequest{})
			require.NoError(t, err)
			assert.Equal(t, row.want, got.GetCondition().GetEffects())
		})
	}
}

func TestKitTopRequest(t *testing.T) {
	a, b := pod("a"), pod("b")
	p := &plugin{named: kit.Named{Pods: []*corev1.Pod{b}, Grace: new(int64(7))}}
	_, conn := serve(t, &kit.Server{Name: "full", Plugin: p})
	got, err := v1alpha1.NewEvictionPluginClient(conn).GetTopEvictionPods(t.Context(), &v1alpha1.GetTopEvictionPodsRequest{
		ActivePods: wire(t, a, b), TopN: 3, EvictionScope: "sda",
		CandidateEvictionRecords: []*v1alpha1.EvictionRecord{{
			Uid: "uid-b", HasPdb: true, DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 3, ExpectedPods: 4,
		}},
	})
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(&v1alpha1.GetTopEvictionPodsResponse{
		TargetPods: wire(t, b), DeletionOptions: &v1alpha1.DeletionOptions{GracePeriodSeconds: 7},
	}, got, protocmp.Transform()))
	assert.Empty(t, cmp.Diff(kit.Ask{
		Pods: []*corev1.Pod{a, b}, N: 3, Scope: "sda",
		Records: map[string]kit.Record{"uid-b": {HasPDB: true, DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 3, ExpectedPods: 4}},
	}, p.ask))
}

func TestKitEvictPods(t *testing.T) {
	a := pod("a")
	p := &plugin{evictions: kit.Evictions{
		Pods:      []kit.Eviction{{Pod: a, Reason: "its card is broken", Force: true, Grace: new(int64(0))}},
		Condition: &kit.Condition{Name: "Broken"},
	}}
	_, conn := serve(t, &kit.Server{Name: "card", Plugin: p})
	got, err := v1alpha1.NewEvictionPluginClient(conn).GetEvictPods(t.Context(), &v1alpha1.GetEvictPodsRequest{ActivePods: wire(t, a)})
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(&v1alpha1.GetEvictPodsResponse{
		EvictPods: []*v1alpha1.EvictPod{{
			Pod: wire(t, a)[0], Reason: "its card is broken", ForceEvict: true, EvictionPluginName: "card",
			DeletionOptions: &v1alpha1.DeletionOptions{},
		}},
		Condition: &v1alpha1.Condition{Effects: []string{"NoSchedule"}, ConditionName: "Broken", MetCondition: true},
	}, got, protocmp.Transform()))
	assert.Empty(t, cmp.Diff([]*corev1.Pod{a}, p.shown))
}

func TestKitWithoutTop(t *testing.T) {
	_, conn := serve(t, &kit.Server{Name: "full", Plugin: watcher{}})
	host := v1alpha1.NewEvictionPluginClient(conn)
	top, err := host.GetTopEvictionPods(t.Context(), &v1alpha1.GetTopEvictionPodsRequest{ActivePods: wire(t, pod("a")), TopN: 1})
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(&v1alpha1.GetTopEvictionPodsResponse{}, top, protocmp.Transform()))
	evict, err := host.GetEvictPods(t.Context(), &v1alpha1.GetEvictPodsRequest{ActivePods: wire(t, pod("a"))})
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(&v1alpha1.GetEvictPodsResponse{}, evict, protocmp.Transform()))
}

func TestKitErrorsReported(t *testing.T) {
	p := &plugin{}
	_, conn := serve(t, &kit.Server{Name: "full", Plugin: p})
	host := v1alpha1.NewEvictionPluginClient(conn)
	calls := map[string]func() error{
		"threshold": func() error {
			_, err := host.ThresholdMet(t.Context(), &v1alpha1.GetThresholdMetRequest{})
			return err
		},
		"top": func() error {
			_, err := host.GetTopEvictionPods(t.Context(), &v1alpha1.GetTopEvictionPodsRequest{})
			return err
		},
		"evict": func() error {
			_, err := host.GetEvictPods(t.Context(), &v1alpha1.GetEvictPodsRequest{})
			return err
		},
	}
	for name, call := range calls {
		p.err = nil
		require.NoError(t, call(), name)
		p.err = errors.New("the card does not answer")
		assert.ErrorContains(t, call(), "the card does not answer", name)
	}
	p.err, p.threshold.Level = nil, 9
	assert.ErrorContains(t, calls["threshold"](), "level 9: want None, Soft or Hard")
	p.threshold = kit.Threshold{Candidates: []*corev1.Pod{nil}}
	assert.ErrorContains(t, calls["threshold"](), "pod 1 of 1: nil pod")
	p.evictions.Pods = []kit.Eviction{{}}
	assert.ErrorContains(t, calls["evict"](), "pod 1 of 1: nil pod")
}

func TestKitRefusesInvalidPod(t *testing.T) {
	_, conn := serve(t, &kit.Server{Name: "full", Plugin: &plugin{}})
	host := v1alpha1.NewEvictionPluginClient(conn)
	broken := [][]byte{{0xff}}
	_, err := host.ThresholdMet(t.Context(), &v1alpha1.GetThresholdMetRequest{ActivePods: broken})
	require.ErrorContains(t, err, "pod 1 of 1")
	_, err = host.GetEvictPods(t.Context(), &v1alpha1.GetEvictPodsRequest{ActivePods: broken})
	require.ErrorContains(t, err, "pod 1 of 1")
	_, err = host.GetTopEvictionPods(t.Context(), &v1alpha1.GetTopEvictionPodsRequest{ActivePods: broken})
	require.ErrorContains(t, err, "pod 1 of 1")
}

// 250 pods of 20 KiB in one question, which a host would send in parts.
func TestKitLargeRequest(t *testing.T) {
	p := &plugin{}
	_, conn := serve(t, &kit.Server{Name: "full", Plugin: p})
	large := pod("a")
	large.Annotations = map[string]string{"bulk": strings.Repeat("x", 20<<10)}
	one := wire(t, large)[0]
	question := &v1alpha1.GetThresholdMetRequest{}
	for range 250 {
		question.ActivePods = append(question.ActivePods, one)
	}
	_, err := v1alpha1.NewEvictionPluginClient(conn).ThresholdMet(t.Context(), question)
	require.NoError(t, err)
	assert.Len(t, p.shown, 250)
}

// counter counts concurrent calls.
type counter struct {
	begun, go1 chan struct{}
}

func (c *counter) Threshold(context.Context, []*corev1.Pod) (kit.Threshold, error) {
	c.begun <- struct{}{}
	<-c.go1
	return kit.Threshold{}, nil
}

func TestKitOneCallAtATime(t *testing.T) {
	c := &counter{begun: make(chan struct{}, 2), go1: make(chan struct{})}
	_, conn := serve(t, &kit.Server{Name: "full", Plugin: c})
	host := v1alpha1.NewEvictionPluginClient(conn)
	first := make(chan error, 1)
	go func() {
		_, err := host.ThresholdMet(t.Context(), &v1alpha1.GetThresholdMetRequest{})
		first <- err
	}()
	<-c.begun
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := host.ThresholdMet(short, &v1alpha1.GetThresholdMetRequest{})
	require.ErrorContains(t, err, "DeadlineExceeded")
	assert.Empty(t, c.begun, "the second call waits for the first, and is dropped when its caller gives up")
	close(c.go1)
	require.NoError(t, <-first)
}

// runner has work of its own.
type runner struct {
	watcher
	ran chan struct{}
	err error
}

func (r *runner) Run(ctx context.Context) error {
	close(r.ran)
	if r.err != nil {
		return r.err
	}
	<-ctx.Done()
	return nil
}

func TestKitRunBesideAnswers(t *testing.T) {
	fine := &runner{ran: make(chan struct{})}
	serve(t, &kit.Server{Name: "fine", Plugin: fine})
	<-fine.ran

	dir := t.TempDir()
	s := kit.Server{Name: "ill", Plugin: &runner{ran: make(chan struct{}), err: errors.New("the card is gone")}, Dir: dir, Log: slog.New(slog.DiscardHandler)}
	require.EqualError(t, s.Run(t.Context()), "the card is gone")
	assert.NoFileExists(t, filepath.Join(dir, "ill.sock"))
}

func TestKitNameValid(t *testing.T) {
	for _, name := range []string{"", ".hidden", "a/b", "../up", "a b"} {
		s := kit.Server{Name: name, Plugin: watcher{}, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
		assert.ErrorContains(t, s.Run(t.Context()), "want letters, digits", "%q", name)
	}
}

// serve runs a server for the test's time, in a directory of its own, and waits
// for its socket.
func serve(t *testing.T, s *kit.Server) (*journal, *grpc.ClientConn) {
	t.Helper()
	log := &journal{}
	s.Log = slog.New(slog.NewTextHandler(log, nil))
	if s.Dir == "" {
		s.Dir = t.TempDir()
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	path := filepath.Join(s.Dir, s.Name+".sock")
	deadline.Eventually(t, func() bool { _, err := os.Lstat(path); return err == nil }, 10*time.Second, time.Millisecond)
	return log, dial(t, path)
}

func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///plugin", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// journal is a log that may be read while it is written.
type journal struct {
	mu  sync.Mutex // of text
	txt strings.Builder
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.txt.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.txt.String()
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID("uid-" + name)}}
}

func wire(t *testing.T, pods ...*corev1.Pod) [][]byte {
	t.Helper()
	out := make([][]byte, len(pods))
	for i, p := range pods {
		b, err := p.Marshal()
		require.NoError(t, err)
		out[i] = b
	}
	return out
}
