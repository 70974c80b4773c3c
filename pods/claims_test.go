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

func TestAnAPIServerThatHangsHoldsALookUpForTwoSecondsAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, claims := fullWatcher(t, 10), &slowClaims{takes: time.Hour}
		w.Claims = claims
		from := time.Now()
		err := w.Resolve(t.Context())
		assert.Equal(t, resolveTime, time.Since(from))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Len(t, claims.asked, resolveAtOnce)
		for _, p := range w.List(DefaultRules()).Pods {
			require.Equal(t, []string{Unresolved}, codes(p.Protections))
			assert.Contains(t, p.Protections[0].Why, "deadline exceeded")
		}
	})
}

func TestOnASlowAPIServerEveryClaimHasItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, claims := fullWatcher(t, 12), &slowClaims{takes: resolveTime - time.Second}
		w.Claims = claims
		for range 2 { // each asks for 8 and has answers of 4
			require.Error(t, w.Resolve(t.Context()))
		}
		seen := slices.Compact(slices.Sorted(slices.Values(claims.asked)))
		assert.Len(t, seen, 12)
		assert.Equal(t, resolveAtOnce, claims.most)
	})
}

func TestAClaimThatWaitsDoesNotHideOneThatMayNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, claims := fullWatcher(t, 3), &slowClaims{}
		w.Claims = claims
		require.NoError(t, w.Resolve(t.Context()), "a claim that is not bound yet is no error")
		claims.refuse = "ns0002"
		require.EqualError(t, w.Resolve(t.Context()), "find the volumes of node n1's pods: get claim ns0002/data: refused")
	})
}

func TestAListIsInOrder(t *testing.T) {
	list := fullWatcher(t, 50).List(DefaultRules())
	for i, p := range list.Pods {
		require.Equal(t, fmt.Sprintf("ns%04d", i), p.Namespace)
	}
}

func TestManyMayAskAtTheSameTime(t *testing.T) {
	w := fullWatcher(t, 20)
	w.Claims = &slowClaims{takes: time.Millisecond}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				assert.Len(t, w.List(DefaultRules()).Pods, 20)
			}
		})
		all.Go(func() { assert.NoError(t, w.Resolve(t.Context())) })
		all.Go(func() { assert.NoError(t, w.pods.Add(made(in("ns0003")))) })
	}
	all.Wait()
}
