package resize

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/plimsoll-dev/plimsoll/throttle"
)

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// server is an API server with one pod and one Node, as values.
type server struct {
	t      *testing.T
	pod    *corev1.Pod
	quotas []corev1.ResourceQuota
	notes  map[string]string // annotations of the Node
	served error
	fails  error // writes of the pod
	// dies after so many writes; 0: never.
	dies, gets, patches int
}

var errDead = errors.New("killed")

func newServer(t *testing.T) *server {
	return &server{t: t, pod: burstable(), notes: map[string]string{}}
}

func pods() schema.GroupResource { return schema.GroupResource{Resource: "pods"} }

func (s *server) write() {
	if s.dies > 0 {
		if s.dies--; s.dies == 0 {
			panic(errDead)
		}
	}
}

func (s *server) patch(_ throttle.Container, body []byte) (*corev1.Pod, error) {
	s.write()
	if s.fails != nil {
		return nil, s.fails
	}
	merged, err := strategicpatch.StrategicMergePatch([]byte(jsonOf(s.t, s.pod)), body, corev1.Pod{})
	require.NoError(s.t, err)
	var after corev1.Pod
	require.NoError(s.t, json.Unmarshal(merged, &after))
	if after.UID != s.pod.UID || after.ResourceVersion != s.pod.ResourceVersion {
		return nil, apierrors.NewConflict(pods(), "web", errDead)
	}
	s.patches++
	s.set(&after)
	return s.pod.DeepCopy(), nil
}

// set is a write of anyone.
func (s *server) set(p *corev1.Pod) {
	n, _ := strconv.Atoi(s.pod.ResourceVersion)
	p.ResourceVersion = strconv.Itoa(n + 1)
	s.pod = p
}

func (s *server) pass() *Pass {
	return &Pass{
		node: "n1", pods: map[string]*corev1.Pod{}, unread: map[string]error{}, refused: map[throttle.Knob]throttle.Resizing{},
		served: func() error { return s.served },
		get: func(throttle.Container) (*corev1.Pod, error) {
			s.gets++
			if s.pod == nil {
				return nil, apierrors.NewNotFound(pods(), "web")
			}
			return s.pod.DeepCopy(), nil
		},
		patch: s.patch,
		quotas: func(string) (*corev1.ResourceQuotaList, error) {
			return &corev1.ResourceQuotaList{Items: s.quotas}, nil
		},
		record: func(body []byte) error {
			s.write()
			var patch struct {
				Metadata struct{ Annotations map[string]*string }
			}
			require.NoError(s.t, json.Unmarshal(body, &patch))
			for k, v := range patch.Metadata.Annotations {
				if delete(s.notes, k); v != nil {
					s.notes[k] = *v
				}
			}
			return nil
		},
	}
}

// limits of app and proxy in millicores.
func (s *server) limits() [2]int64 {
	return [2]int64{s.pod.Spec.Containers[0].Resources.Limits.Cpu().MilliValue(), s.pod.Spec.InitContainers[1].Resources.Limits.Cpu().MilliValue()}
}

func (s *server) recorded() []throttle.Limit {
	node := &corev1.Node{}
	node.Annotations = s.notes
	list, err := Recorded(node)
	require.NoError(s.t, err)
	return list
}

func ref() throttle.Container { return throttle.Container{Namespace: "shop", Pod: "web", UID: "1"} }

// want are these cores for both containers; 0: none.
func (s *server) want(p *Pass, cores float64) map[throttle.Knob]float64 {
	want := map[throttle.Knob]float64{}
	if cores > 0 {
		knobs, err := p.Knobs("/pod1", ref())
		require.NoError(s.t, err)
		for _, k := range knobs {
			want[k] = cores
		}
	}
	return want
}

// set makes an agent with this journal want so many cores.
func (s *server) round(j *throttle.Journal, cores float64) (*Pass, error) {
	p := s.pass()
	j.Files, j.Save = p, p.Record
	return p, j.Set(s.want(p, cores))
}

func TestPassResizesAndRestores(t *testing.T) {
	s := newServer(t)
	before := jsonOf(t, s.pod.Spec)
	j := &throttle.Journal{}
	_, err := s.round(j, 0.3)
	require.NoError(t, err)
	assert.Equal(t, [2]int64{300, 300}, s.limits(), "each of them may use as much as is meant for the pod")
	assert.Equal(t, 1, s.gets, "one read for all")
	assert.Len(t, s.recorded(), 2)
	target := throttle.Target{Cgroup: "/pod1"}
	assert.Equal(t, map[throttle.Target]throttle.Resizing{target: {Why: "the kubelet has not resized it"}}, s.pass().Resizing(j.Limits))
	s.pod.Status.ContainerStatuses[0].Resources.Limits = quantities("300m", "")
	s.pod.Status.InitContainerStatuses[0].Resources.Limits = quantities("300m", "")
	_, err = s.round(j, 0.3)
	require.NoError(t, err)
	assert.Empty(t, s.pass().Resizing(j.Limits))
	assert.Equal(t, 2, s.patches, "nothing changed, nothing is written")
	_, err = s.round(j, 0.05)
	require.NoError(t, err)
	assert.Equal(t, [2]int64{260, 110}, s.limits(), "above the request of each")
	_, err = s.round(j, 0.6)
	require.NoError(t, err)
	assert.Equal(t, [2]int64{600, 500}, s.limits(), "no more than before")
	_, err = s.round(j, 0)
	require.NoError(t, err)
	assert.JSONEq(t, before, jsonOf(t, s.pod.Spec), "exactly as before")
	assert.Empty(t, s.notes)
}

// A pod is read once in a pass, also where that fails.
func TestPassReadsOnce(t *testing.T) {
	for _, fails := range []error{nil, errDead} {
		s := newServer(t)
		j := &throttle.Journal{}
		_, err := s.round(j, 0.3)
		require.NoError(t, err)
		s.gets = 0
		p := s.pass()
		get := p.get
		p.get = func(c throttle.Container) (*corev1.Pod, error) {
			pod, err := get(c)
			if fails != nil {
				return nil, fails
			}
			return pod, err
		}
		p.Read(j.Limits)
		assert.Equal(t, fails != nil, p.Unread(ref()))
		p.Resizing(j.Limits)
		j.Files, j.Save = p, p.Record
		require.ErrorIs(t, j.Set(map[throttle.Knob]float64{j.Limits[0].Knob: 0.3, j.Limits[1].Knob: 0.3}), fails)
		assert.Equal(t, 1, s.gets)
	}
}

func TestPassForeignLimitKept(t *testing.T) {
	s := newServer(t)
	j := &throttle.Journal{}
	_, err := s.round(j, 0.3)
	require.NoError(t, err)
	theirs := s.pod.DeepCopy()
	theirs.Spec.Containers[0].Resources.Limits = quantities("7", "1Gi")
	s.set(theirs)
	for _, cores := range []float64{0.3, 0.2, 0} {
		_, err = s.round(j, cores)
		require.NoError(t, err)
		assert.EqualValues(t, 7000, s.limits()[0])
	}
	assert.EqualValues(t, 500, s.limits()[1], "the other is restored")
	assert.Empty(t, s.notes)
}

func TestPassRefused(t *testing.T) {
	forbidden := apierrors.NewForbidden(pods(), "web", errors.New("no right"))
	for name, c := range map[string]struct {
		fails   error
		refused bool
	}{
		"no right":         {forbidden, true},
		"invalid":          {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil), true},
		"changed since":    {apierrors.NewConflict(pods(), "web", errDead), false},
		"too many":         {apierrors.NewTooManyRequests("later", 1), false},
		"no answer":        {apierrors.NewTimeoutError("later", 1), false},
		"not served (404)": {apierrors.NewNotFound(pods(), "web"), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.fails = c.fails
			j := &throttle.Journal{}
			p, err := s.round(j, 0.3)
			require.Error(t, err)
			got := p.Refused()[throttle.Target{Cgroup: "/pod1"}]
			assert.Equal(t, c.refused, got.Refused)
			assert.Contains(t, got.Why, "the API server refuses the resize: ")
			_, err = s.round(j, 0)
			require.NoError(t, err, "nothing was changed, nothing is to be restored")
			assert.Empty(t, j.Limits)
			assert.Empty(t, s.notes)
		})
	}
}

func TestPassPodGone(t *testing.T) {
	for name, change := range map[string]func(s *server){
		"deleted":         func(s *server) { s.pod = nil },
		"recreated":       func(s *server) { s.pod.UID = types.UID("2") },
		"of another node": func(s *server) { s.pod.Spec.NodeName = "n2" },
		"ended":           func(s *server) { s.pod.Status.Phase = corev1.PodFailed },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			j := &throttle.Journal{}
			_, err := s.round(j, 0.3)
			require.NoError(t, err)
			change(s)
			_, err = s.round(j, 0)
			require.NoError(t, err)
			assert.Equal(t, 2, s.patches, "it is not written")
			assert.Empty(t, s.notes, "and forgotten")
			_, err = s.pass().Knobs("/pod1", ref())
			require.ErrorIs(t, err, throttle.ErrGone)
		})
	}
}

func TestPassExempt(t *testing.T) {
	s := newServer(t)
	assert.Empty(t, s.pass().Exempt(ref()))
	s.quotas = []corev1.ResourceQuota{{Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: *s.pod.Spec.Containers[0].Resources.Requests.Cpu()}}}}
	assert.Empty(t, s.pass().Exempt(ref()), "it counts requests, which stay")
	s.quotas[0].Name, s.quotas[0].Spec.Hard = "q", corev1.ResourceList{corev1.ResourceLimitsCPU: *s.pod.Spec.Containers[0].Resources.Requests.Cpu()}
	assert.Equal(t, "ResourceQuota q counts CPU limits", s.pass().Exempt(ref()))
	s.quotas = nil
	s.pod.Status.QOSClass = corev1.PodQOSBestEffort
	assert.Equal(t, "it is BestEffort, not Burstable", s.pass().Exempt(ref()))
	s.pod = nil
	assert.Contains(t, s.pass().Exempt(ref()), "its pod cannot be read: ")
	s.served = ErrNotServed
	assert.Equal(t, ErrNotServed.Error(), s.pass().Exempt(ref()))
}

// killedIn runs a round and is killed at a write; it tells whether it was.
func (s *server) killedIn(j *throttle.Journal, cores float64, write int) (killed bool) {
	defer func() {
		if recover() != nil {
			killed = true
		}
		s.dies = 0
	}()
	s.dies = write
	_, _ = s.round(j, cores)
	return false
}

// stranger is what others set, less than all that the agent wants.
const stranger = 255

// step is one moment of a history: a wish, a refusal, a crash at any write, a stranger.
func (s *server) step(r *rand.Rand, j *throttle.Journal) (after *throttle.Journal, theirs bool) {
	s.fails = nil
	if r.IntN(6) == 0 {
		s.fails = apierrors.NewForbidden(pods(), "web", errDead)
	}
	if s.killedIn(j, []float64{0, 0.05, 0.3, 0.9, 5}[r.IntN(5)], r.IntN(6)) {
		j = &throttle.Journal{Limits: s.recorded()}
	}
	if theirs = r.IntN(8) == 0; theirs {
		p := s.pod.DeepCopy()
		p.Spec.Containers[0].Resources.Limits = quantities("255m", "1Gi")
		s.set(p)
	}
	return j, theirs
}

// Any history: what others wrote stays, no limit is as low as the request, and without
// others all is as it was before.
func TestPassRandomHistory(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		s, j, want := newServer(t), &throttle.Journal{}, [2]int64{2000, 500}
		for range 1 + r.IntN(10) {
			var theirs bool
			if j, theirs = s.step(r, j); theirs {
				want[0] = stranger
			}
			now := s.limits()
			require.True(t, now[0] > 250 && now[1] > 100 && (want[0] != stranger || now[0] == stranger), "seed %d: %v", seed, now)
		}
		s.fails = nil
		_, err := s.round(j, 0)
		require.NoError(t, err)
		require.Equal(t, want, s.limits(), "seed %d", seed)
		require.Empty(t, s.notes, "seed %d", seed)
	}
}
