package conformance_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/plugins/outer/conformance"
)

// fake is a plugin at hard that names the first pods that it is shown, except for
// what a case changes.
type fake struct {
	wire.UnimplementedEvictionPluginServer
	registration.UnimplementedRegistrationServer
	limit int // bytes of a question
	info  *registration.PluginInfo
	// before is called before each answer; met and top replace answers.
	before func(context.Context, proto.Message) error
	met    func(*wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error)
	top    func(*wire.GetTopEvictionPodsRequest) *wire.GetTopEvictionPodsResponse
	getInf func() error
}

func newFake() *fake {
	return &fake{
		limit: 4 << 20, info: &registration.PluginInfo{Type: "EvictionPlugin", Name: "fake", SupportedVersions: []string{"v1alpha1"}},
		before: func(context.Context, proto.Message) error { return nil },
		met: func(*wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error) {
			return &wire.ThresholdMetResponse{MetType: wire.ThresholdMetType_HARD_MET, ObservedValue: 2, ThresholdValue: 1, EvictionScope: "a"}, nil
		},
		top:    firstPods,
		getInf: func() error { return nil },
	}
}

func firstPods(r *wire.GetTopEvictionPodsRequest) *wire.GetTopEvictionPodsResponse {
	return &wire.GetTopEvictionPodsResponse{TargetPods: r.GetActivePods()[:min(r.GetTopN(), uint64(len(r.GetActivePods())))]}
}

func (f *fake) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return f.info, f.getInf()
}

func (f *fake) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

func (f *fake) ThresholdMet(ctx context.Context, r *wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error) {
	if err := f.before(ctx, r); err != nil {
		return nil, err
	}
	return f.met(r)
}

func (f *fake) GetTopEvictionPods(ctx context.Context, r *wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
	return f.top(r), f.before(ctx, r)
}

// serve serves a plugin, and returns its socket.
func (f *fake) serve(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fake.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	s := grpc.NewServer(grpc.MaxRecvMsgSize(f.limit))
	wire.RegisterEvictionPluginServer(s, f)
	registration.RegisterRegistrationServer(s, f)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-done)
	})
	return path
}

var errFake = errors.New("it cannot")

// errorIf makes an error of each question that is so.
func errorIf[Q proto.Message](so func(Q) bool) func(*fake) {
	return func(f *fake) {
		f.before = func(_ context.Context, m proto.Message) error {
			if q, is := m.(Q); is && so(q) {
				return errFake
			}
			return nil
		}
	}
}

// hangAtScope never answers about a scope that is not its own.
func hangAtScope(f *fake) {
	f.before = func(ctx context.Context, m proto.Message) error {
		if r, is := m.(*wire.GetTopEvictionPodsRequest); is && r.GetEvictionScope() != "a" {
			<-ctx.Done()
		}
		return ctx.Err()
	}
}

// oneAtATime refuses a call while another one runs, which takes a moment.
func oneAtATime(f *fake) {
	var running atomic.Int32
	f.before = func(ctx context.Context, _ proto.Message) error {
		defer running.Add(-1)
		if running.Add(1) > 1 {
			return errFake
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
		return nil
	}
}

// remembers names the pods of the first question for ever.
func remembers(f *fake) {
	var first atomic.Pointer[[][]byte]
	f.top = func(r *wire.GetTopEvictionPodsRequest) *wire.GetTopEvictionPodsResponse {
		pods := r.GetActivePods()
		first.CompareAndSwap(nil, &pods)
		return firstPods(&wire.GetTopEvictionPodsRequest{ActivePods: *first.Load(), TopN: r.GetTopN()})
	}
}

// cooldown names pods once.
func cooldown(f *fake) {
	var asked atomic.Int32
	f.top = func(r *wire.GetTopEvictionPodsRequest) *wire.GetTopEvictionPodsResponse {
		if asked.Add(1) > 1 {
			return &wire.GetTopEvictionPodsResponse{}
		}
		return firstPods(r)
	}
}

// names changes the pods that are named.
func names(change func([][]byte) [][]byte) func(*fake) {
	return func(f *fake) {
		f.top = func(r *wire.GetTopEvictionPodsRequest) *wire.GetTopEvictionPodsResponse {
			return &wire.GetTopEvictionPodsResponse{TargetPods: change(firstPods(r).GetTargetPods())}
		}
	}
}

// twice names the first pod twice, within topN.
func twice(pods [][]byte) [][]byte {
	if len(pods) < 2 {
		return nil
	}
	return [][]byte{pods[0], pods[0]}
}

// oneMore names a pod more than it is asked for.
func oneMore(f *fake) {
	f.top = func(r *wire.GetTopEvictionPodsRequest) *wire.GetTopEvictionPodsResponse {
		return firstPods(&wire.GetTopEvictionPodsRequest{ActivePods: r.GetActivePods(), TopN: r.GetTopN() + 1})
	}
}

func graceZero(f *fake) {
	f.top = func(r *wire.GetTopEvictionPodsRequest) *wire.GetTopEvictionPodsResponse {
		named := firstPods(r)
		named.DeletionOptions = &wire.DeletionOptions{}
		return named
	}
}

// answers makes one answer of all, and none an error.
func answers(m *wire.ThresholdMetResponse) func(*fake) {
	return func(f *fake) {
		f.met = func(*wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error) {
			if m == nil {
				return nil, errFake
			}
			return m, nil
		}
	}
}

// large answers a question without pods with 9 MiB.
func large(f *fake) {
	ordinary := f.met
	f.met = func(r *wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error) {
		if len(r.GetActivePods()) > 0 {
			return ordinary(r)
		}
		return &wire.ThresholdMetResponse{EvictionScope: string(make([]byte, 9<<20))}, nil
	}
}

// registersOnce refuses every registration but the first.
func registersOnce(f *fake) {
	var asked atomic.Int32
	f.getInf = func() error {
		if asked.Add(1) > 1 {
			return errFake
		}
		return nil
	}
}

// Each flaw is found by the check that is about it, and by no other one.
func TestFlaws(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*fake)
		failed []string
	}{
		{"none", func(*fake) {}, nil},
		{"type", func(f *fake) { f.info.Type = "CSIPlugin" }, []string{"registration"}},
		{"version", func(f *fake) { f.info.SupportedVersions = []string{"v2"} }, []string{"registration"}},
		{"name", func(f *fake) { f.info.Name = "a b" }, []string{"registration"}},
		{"endpoint", func(f *fake) { f.info.Endpoint = "/nonexistent/a.sock" }, []string{"registration"}},
		{"question limit 1 MiB", func(f *fake) { f.limit = 1 << 20 }, []string{"huge", "4-MiB"}},
		{"question limit 4 MiB less 1", func(f *fake) { f.limit = 4<<20 - 1 }, []string{"4-MiB"}},
		{"no pods is an error", errorIf(func(r *wire.GetThresholdMetRequest) bool { return len(r.GetActivePods()) == 0 }), []string{"no-pods"}},
		{"unknown fields are an error", errorIf(func(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }), []string{"unknown-fields"}},
		{"records are an error", errorIf(func(r *wire.GetTopEvictionPodsRequest) bool { return len(r.GetCandidateEvictionRecords()) > 0 }), []string{"unknown-values"}},
		{"unknown scope hangs", hangAtScope, []string{"unknown-scope", "call-time"}},
		{"one call at a time", oneAtATime, []string{"concurrent-calls"}},
		{"pods of earlier questions", remembers, []string{"shown-pods"}},
		{"one pod more than asked for", oneMore, []string{"top-n"}},
		{"a pod twice", names(twice), []string{"top-n"}},
		{"bytes that are no pod", names(func(pods [][]byte) [][]byte { return make([][]byte, len(pods)) }), []string{"shown-pods"}},
		{"cooldown", cooldown, []string{"named-again", "stateless"}},
		{"grace 0", graceZero, []string{"deletion-grace"}},
		{"answers of 9 MiB", large, []string{"answer-size", "texts"}},
		{"unknown level", answers(&wire.ThresholdMetResponse{MetType: 7, ThresholdValue: 1}), []string{"level"}},
		{"NoExecute", answers(&wire.ThresholdMetResponse{ThresholdValue: 1, Condition: &wire.Condition{ConditionName: "Busy", Effects: []string{"NoExecute"}}}), []string{"condition"}},
		{"zeros", answers(&wire.ThresholdMetResponse{EvictionScope: "a"}), []string{"error-not-zero"}},
		{"errors where it cannot measure", answers(nil), nil},
		{"no second registration", registersOnce, []string{"host-restart"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			c.change(f)
			r := examine(t, conformance.Options{Socket: f.serve(t)})
			failed, works := []string(nil), true
			for _, one := range r.Checks {
				if one.Result == conformance.Failed && one.Name != "round-time" { // of a busy machine
					failed = append(failed, one.Name)
					works = works && !one.Required
				}
			}
			assert.ElementsMatch(t, c.failed, failed, "%+v", r.Checks)
			assert.Equal(t, works, r.Works)
		})
	}
}

// callLimit is far above what a fake needs on a busy machine.
const callLimit = 5 * time.Second

func examine(t *testing.T, o conformance.Options) conformance.Report {
	t.Helper()
	o.Timeout = callLimit
	r, err := conformance.Test(t.Context(), o)
	require.NoError(t, err)
	return r
}

// unserved has a registration and no plugin.
type unserved struct{ *fake }

func TestNoPlugin(t *testing.T) {
	t.Run("no method", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "fake.sock")
		l, err := net.Listen("unix", path)
		require.NoError(t, err)
		s := grpc.NewServer()
		registration.RegisterRegistrationServer(s, unserved{newFake()})
		go func() { _ = s.Serve(l) }() // Stop ends it
		t.Cleanup(s.Stop)
		r := examine(t, conformance.Options{Socket: path})
		assert.Equal(t, conformance.Failed, r.Find("methods").Result, r.Find("methods").Observation)
		assert.False(t, r.Works)
	})
	t.Run("no socket", func(t *testing.T) {
		_, err := conformance.Test(t.Context(), conformance.Options{Socket: filepath.Join(t.TempDir(), "none.sock"), Timeout: callLimit})
		require.ErrorContains(t, err, "none.sock")
	})
	t.Run("no program", func(t *testing.T) {
		_, err := conformance.Test(t.Context(), conformance.Options{Command: []string{"/nonexistent/program"}, Timeout: callLimit})
		require.ErrorContains(t, err, "/nonexistent/program")
	})
}
