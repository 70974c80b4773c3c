package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// fullWatcher has n pods, as if the API server had listed them.
func fullWatcher(tb testing.TB, n int) *Watcher {
	tb.Helper()
	w := &Watcher{Node: "n1", pods: new(Watcher).newStore()}
	for i := range n {
		require.NoError(tb, w.pods.Add(made(claiming("data"), in(fmt.Sprintf("ns%04d", i)), func(p *corev1.Pod) {
			p.UID = types.UID(fmt.Sprint("u", i))
		})))
	}
	return w
}

// everyPod is named.
func everyPod(w *Watcher) (uids []string) {
	for _, p := range w.List(DefaultRules()).Pods {
		uids = append(uids, p.CgroupUID)
	}
	return uids
}

// slowClaims answers each request after a time, with an error or with a claim
// that waits for its volume.
type slowClaims struct {
	corev1client.PersistentVolumeClaimInterface
	takes  time.Duration
	refuse string // the namespace whose claims may not be read

	mu     sync.Mutex // guards all below
	asked  []string   // namespaces
	inside int
	most   int
}

// claimsIn are those of one namespace.
type claimsIn struct {
	*slowClaims
	namespace string
}

func (s *slowClaims) PersistentVolumeClaims(namespace string) corev1client.PersistentVolumeClaimInterface {
	return claimsIn{s, namespace}
}

func (s claimsIn) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*corev1.PersistentVolumeClaim, error) {
	s.enters(1)
	defer s.enters(-1)
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.namespace == s.refuse {
		return nil, errors.New("refused")
	}
	// It names a volume, which another claim may have.
	return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv1"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}, nil
}

func (s claimsIn) enters(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside += n
	s.most = max(s.most, s.inside)
	if n > 0 {
		s.asked = append(s.asked, s.namespace)
	}
}

func TestClaims(t *testing.T) {
	t.Run("API server hangs", claimsAPIServerHangs)
	t.Run("slow API server fair", claimsSlowAPIServerFair)
	t.Run("forbidden beside waiting", claimsForbiddenBesideWaiting)
	t.Run("of started pod", claimsOfStartedPod)
	t.Run("seen before pod started", claimsSeenBeforePodStarted)
	t.Run("of first named first", claimsOfFirstNamedFirst)
	t.Run("late answer dropped", claimsLateAnswerDropped)
	t.Run("thousands of one pod", claimsThousandsOfOnePod)
	t.Run("known for", claimsKnownFor)
	t.Run("in turn", claimsInTurn)
	t.Run("known once bound", claimsKnownOnceBound)
}

func claimsAPIServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, claims := fullWatcher(t, 10), &slowClaims{takes: time.Hour}
		w.Claims = claims
		from := time.Now()
		err := w.Resolve(t.Context(), everyPod(w))
		assert.Equal(t, resolveTime, time.Since(from))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Len(t, claims.asked, resolveConcurrency)
		for _, p := range w.List(DefaultRules()).Pods {
			require.Equal(t, []string{Unresolved}, codes(p.Protections))
			assert.Contains(t, p.Protections[0].Why, "deadline exceeded")
		}
	})
}

func claimsSlowAPIServerFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, claims := fullWatcher(t, 12), &slowClaims{takes: resolveTime * 3 / 5}
		w.Claims = claims
		for range 2 { // each asks for 8 and has answers of 4
			require.Error(t, w.Resolve(t.Context(), everyPod(w)))
		}
		seen := slices.Compact(slices.Sorted(slices.Values(claims.asked)))
		assert.Len(t, seen, 12)
		assert.Equal(t, resolveConcurrency, claims.most)
	})
}

func claimsForbiddenBesideWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, claims := fullWatcher(t, 3), &slowClaims{}
		w.Claims = claims
		require.NoError(t, w.Resolve(t.Context(), everyPod(w)), "a claim that is not bound yet is no error")
		claims.refuse = "ns0002"
		time.Sleep(resolveRetry)
		require.EqualError(t, w.Resolve(t.Context(), everyPod(w)), "look up the volumes of pods on node n1: get claim ns0002/data: refused")
	})
}

// What a tenant may do to the claims of its pods.
func claimsOfStartedPod(t *testing.T) {
	pending := func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }
	initializing := func(p *corev1.Pod) {
		pending(p)
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "i", ContainerID: "containerd://1"}}
	}
	claimed := func(phase corev1.PersistentVolumeClaimPhase, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
	}
	for what, row := range map[string]struct {
		pod   func(*corev1.Pod)
		claim *corev1.PersistentVolumeClaim // nil: there is none
		code  string
	}{
		"it runs, and the claim waits":                {func(*corev1.Pod) {}, claimed(corev1.ClaimPending, ""), ""},
		"it runs, and the claim names a volume":       {func(*corev1.Pod) {}, claimed(corev1.ClaimPending, "pv1"), ""},
		"it runs, and the claim has lost its volume":  {func(*corev1.Pod) {}, claimed(corev1.ClaimLost, "pv1"), ""},
		"it runs, and there is no claim":              {func(*corev1.Pod) {}, nil, ""},
		"an init container runs, and the claim waits": {initializing, claimed(corev1.ClaimPending, ""), ""},
		"it did not start, and the claim waits":       {pending, claimed(corev1.ClaimPending, ""), Unresolved},
		"it did not start, and there is no claim":     {pending, nil, ""},
		"it runs, and its volume is local":            {func(*corev1.Pod) {}, claimed(corev1.ClaimBound, "pv1"), OnlyHere},
	} {
		t.Run(what, func(t *testing.T) {
			w := &Watcher{Node: "n1", pods: new(Watcher).newStore(), Claims: oneClaim{claim: row.claim}, Volumes: localVolumes{}}
			require.NoError(t, w.pods.Add(made(claiming("data"), row.pod)))
			require.NoError(t, w.Resolve(t.Context(), everyPod(w)))
			var want []string
			if row.code != "" {
				want = []string{row.code}
			}
			assert.Equal(t, want, codes(w.List(DefaultRules()).Pods[0].Protections))
		})
	}
}

func claimsSeenBeforePodStarted(t *testing.T) {
	w := &Watcher{Node: "n1", pods: new(Watcher).newStore(), Claims: oneClaim{}, Volumes: localVolumes{}}
	require.NoError(t, w.pods.Add(made(claiming("data"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })))
	require.NoError(t, w.Resolve(t.Context(), everyPod(w)))
	require.Empty(t, w.List(DefaultRules()).Pods[0].Protections)
	require.NoError(t, w.pods.Update(made(claiming("data"))))
	assert.Equal(t, []string{Unresolved}, codes(w.List(DefaultRules()).Pods[0].Protections))
	w.Claims = oneClaim{claim: &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv1"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}}
	require.NoError(t, w.Resolve(t.Context(), everyPod(w)), "at once, not after a minute")
	assert.Equal(t, []string{OnlyHere}, codes(w.List(DefaultRules()).Pods[0].Protections))
}

func claimsOfFirstNamedFirst(t *testing.T) {
	var asked []string
	w := fullWatcher(t, 0)
	w.Claims = manyClaims{mu: new(sync.Mutex), asked: &asked}
	var uids []string
	for i := range 3 * resolveClaims {
		uid := fmt.Sprint("u", i)
		uids = append([]string{uid}, uids...)
		require.NoError(t, w.pods.Add(made(claiming("of-"+uid), func(p *corev1.Pod) { p.UID, p.Name = types.UID(uid), fmt.Sprintf("p%03d", i) })))
	}
	require.NoError(t, w.Resolve(t.Context(), uids))
	var want []string
	for _, uid := range uids[:resolveClaims] {
		want = append(want, "shop/of-"+uid)
	}
	assert.ElementsMatch(t, want, asked)
}

func claimsLateAnswerDropped(t *testing.T) {
	w := fullWatcher(t, 1)
	open := w.unknownClaims(everyPod(w))
	require.Len(t, open, 1)
	gone := unknownClaim{claimKey: claimKey{"gone", "shop", "data"}}
	w.storeClaims(append(open, gone), []claim{{known: true}, {known: true}})
	assert.Len(t, w.claims, 1)
	w.storeClaims(open, []claim{{unbinding: true}})
	assert.True(t, w.claims[open[0].claimKey].known, "nor does a later one replace what is known")
}

// oneClaim is the only one; nil: there is none.
type oneClaim struct {
	corev1client.PersistentVolumeClaimInterface
	claim *corev1.PersistentVolumeClaim
}

func (o oneClaim) PersistentVolumeClaims(string) corev1client.PersistentVolumeClaimInterface {
	return o
}

func (o oneClaim) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.PersistentVolumeClaim, error) {
	if o.claim == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), name)
	}
	return o.claim, nil
}

// localVolumes are disks of this node.
type localVolumes struct {
	corev1client.PersistentVolumeInterface
}

func (l localVolumes) PersistentVolumes() corev1client.PersistentVolumeInterface { return l }

func (localVolumes) Get(context.Context, string, metav1.GetOptions) (*corev1.PersistentVolume, error) {
	return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/d"}}}}, nil
}

// manyClaims answers that there are none, and keeps what it was asked for.
type manyClaims struct {
	corev1client.PersistentVolumeClaimInterface
	mu    *sync.Mutex // guards asked
	asked *[]string   // namespaces and names
	space string
}

func (m manyClaims) PersistentVolumeClaims(space string) corev1client.PersistentVolumeClaimInterface {
	m.space = space
	return m
}

func (m manyClaims) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.PersistentVolumeClaim, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*m.asked = append(*m.asked, m.space+"/"+name)
	return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), name)
}

func claimsThousandsOfOnePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		claims := manyClaims{mu: new(sync.Mutex), asked: &asked}
		w := &Watcher{Node: "n1", pods: new(Watcher).newStore(), Claims: claims, Volumes: localVolumes{}}
		var names []string
		for i := range 3000 {
			names = append(names, fmt.Sprintf("c%04d", i))
		}
		for i, space := range []string{"a", "tenant", "z"} {
			pod := made(claiming("data", "more"), in(space), func(p *corev1.Pod) { p.UID = types.UID(fmt.Sprint("u", i)) })
			if space == "tenant" {
				claiming(names...)(pod)
			}
			require.NoError(t, w.pods.Add(pod))
		}
		require.NoError(t, w.Resolve(t.Context(), []string{"nobody"}))
		assert.Empty(t, asked, "of who is not named")
		require.NoError(t, w.Resolve(t.Context(), everyPod(w)))
		require.Len(t, asked, resolveClaims)
		for _, claim := range []string{"a/data", "a/more", "z/data", "z/more"} {
			assert.Contains(t, asked, claim)
		}
		for range 10 {
			require.NoError(t, w.Resolve(t.Context(), everyPod(w)))
		}
		require.Len(t, asked, 11*resolveClaims)
		assert.Len(t, slices.Compact(slices.Sorted(slices.Values(asked))), 11*resolveClaims, "each once")
		time.Sleep(resolveRetry)
		require.NoError(t, w.Resolve(t.Context(), []string{"u0"}))
		assert.Equal(t, []string{"a/data", "a/more"}, slices.Sorted(slices.Values(asked[11*resolveClaims:])), "after a minute again")
	})
}

func TestPodListSorted(t *testing.T) {
	list := fullWatcher(t, 50).List(DefaultRules())
	for i, p := range list.Pods {
		require.Equal(t, fmt.Sprintf("ns%04d", i), p.Namespace)
	}
}

func TestWatcherConcurrentUse(t *testing.T) {
	w := fullWatcher(t, 20)
	w.Claims = &slowClaims{takes: time.Millisecond}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				assert.Len(t, w.List(DefaultRules()).Pods, 20)
			}
		})
		all.Go(func() { assert.NoError(t, w.Resolve(t.Context(), everyPod(w))) })
		all.Go(func() { assert.NoError(t, w.pods.Add(made(in("ns0003")))) })
	}
	all.Wait()
}

func claimsKnownFor(t *testing.T) {
	now := time.Unix(1000, 0)
	minute := now.Add(-resolveRetry)
	running, pending, fresh := made(), made(func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} }), made(func(p *corev1.Pod) { p.Status = corev1.PodStatus{} })
	assert.True(t, started(running))
	assert.False(t, started(pending))
	assert.False(t, started(fresh), "no kubelet has seen it")
	unbound := fmt.Errorf("%w, its phase is %q", errNotBound, corev1.ClaimPending)
	for what, row := range map[string]struct {
		c     claim
		pod   *corev1.Pod
		keeps bool // for the pod
		rests bool
	}{
		"bound, before the pod started":          {claim{known: true}, running, true, true},
		"bound":                                  {claim{known: true, started: true}, running, true, true},
		"none, before the pod started":           {claim{unbinding: true, lookedUpAt: now}, running, false, true},
		"none, and the pod waits":                {claim{unbinding: true, lookedUpAt: now}, pending, true, true},
		"none, a minute ago":                     {claim{unbinding: true, lookedUpAt: minute}, pending, true, false},
		"not bound, almost a minute ago":         {claim{why: unbound, lookedUpAt: minute.Add(1)}, pending, true, true},
		"not bound, a minute ago":                {claim{why: unbound, lookedUpAt: minute}, pending, true, false},
		"it could not be read":                   {claim{why: errors.New("refused"), lookedUpAt: now}, pending, true, false},
		"it was not asked for yet":               {claim{}, pending, true, false},
		"none, and the pod had started by then ": {claim{unbinding: true, started: true, lookedUpAt: now}, running, true, true},
	} {
		assert.Equal(t, row.rests, row.c.isFresh(now), what)
		if row.keeps {
			assert.Equal(t, row.c, row.c.forPod(row.pod), what)
		} else {
			assert.Equal(t, claim{}, row.c.forPod(row.pod), what)
		}
	}
}

func TestClaimNamesOnce(t *testing.T) {
	assert.Equal(t, []string{"a", "b"}, claimNames(made(claiming("b"), claiming("a"), claiming("b"))))
}

func claimsInTurn(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	of := func(namespace, name string, asked int64, place int) unknownClaim {
		return unknownClaim{claimKey: claimKey{namespace: namespace, name: name}, asked: at(asked), rank: place}
	}
	var got []string
	for _, c := range roundRobin([]unknownClaim{of("x", "x2", 0, 2), of("x", "x1", 0, 1), of("y", "y5", 9, 0), of("y", "y4", 5, 4), of("x", "x0", 7, 0)}) {
		got = append(got, c.name)
	}
	assert.Equal(t, []string{"x1", "y4", "y5", "x2", "x0"}, got, "one of each namespace before another's second; of one the longest not asked for, then by the pod's place")
}

// bindings answer for claims and volumes by their names.
type bindings struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
}

type boundClaims struct {
	corev1client.PersistentVolumeClaimInterface
	*bindings
}

func (b boundClaims) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.PersistentVolumeClaim, error) {
	if b.claim == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), name)
	}
	return b.claim, nil
}

type boundVolumes struct {
	corev1client.PersistentVolumeInterface
	*bindings
}

func (b boundVolumes) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.PersistentVolume, error) {
	if b.volume == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumes"), name)
	}
	return b.volume, nil
}

func (b *bindings) PersistentVolumeClaims(string) corev1client.PersistentVolumeClaimInterface {
	return boundClaims{bindings: b}
}

func (b *bindings) PersistentVolumes() corev1client.PersistentVolumeInterface {
	return boundVolumes{bindings: b}
}

func claimsKnownOnceBound(t *testing.T) {
	bound := func(volume string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
	}
	local := &corev1.PersistentVolume{}
	local.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/data"}
	for what, row := range map[string]struct {
		claim       *corev1.PersistentVolumeClaim
		volume      *corev1.PersistentVolume
		started     bool
		known, none bool
		why         string
	}{
		"bound, its volume is elsewhere too":  {bound("pv", corev1.ClaimBound), &corev1.PersistentVolume{}, true, true, false, ""},
		"bound, and bound to the node":        {bound("pv", corev1.ClaimBound), local, true, true, false, ""},
		"its volume cannot be read":           {bound("pv", corev1.ClaimBound), nil, true, false, false, "get volume pv: "},
		"no such claim":                       {nil, nil, false, false, true, ""},
		"it waits, and so does the pod":       {bound("", corev1.ClaimPending), nil, false, false, false, "claim is not bound"},
		"it names none and says it is bound":  {bound("", corev1.ClaimBound), local, false, false, false, "claim is not bound"},
		"it is lost, before the pod started":  {bound("pv", corev1.ClaimLost), local, false, false, false, "claim is not bound"},
		"it waits, and the pod had started":   {bound("", corev1.ClaimPending), nil, true, false, true, ""},
		"it names one, and waits for another": {bound("pv", corev1.ClaimPending), local, true, false, true, ""},
	} {
		b := &bindings{claim: row.claim, volume: row.volume}
		c := (&Watcher{Claims: b, Volumes: b}).lookUp(t.Context(), unknownClaim{claimKey: claimKey{name: "data"}, started: row.started})
		assert.Equal(t, row.known, c.known, what)
		assert.Equal(t, row.none, c.unbinding, what)
		assert.Equal(t, row.known && row.volume == local, c.onlyHere != "", what)
		assert.Equal(t, row.why == "", c.why == nil, what)
		assert.Contains(t, c.reason(), row.why, what)
		assert.Equal(t, row.why == "claim is not bound", errors.Is(c.why, errNotBound), what)
	}
}
