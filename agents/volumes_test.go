package agents

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// hold is an API server's claims and volumes: those that are named "gone" are not
// there, of "broken" ones nothing can be read, "unbound" ones wait; "local" ones
// are a disk of their node, and all others are everywhere. Each call takes a time.
type hold struct {
	corev1client.PersistentVolumeClaimInterface
	takes time.Duration
	asked atomic.Int64
}

func (h *hold) call(ctx context.Context) error {
	h.asked.Add(1)
	if h.takes == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(h.takes):
		return nil
	}
}

func (h *hold) PersistentVolumeClaims(string) corev1client.PersistentVolumeClaimInterface { return h }

func (h *hold) PersistentVolumes() corev1client.PersistentVolumeInterface { return holdVolumes{h: h} }

func (h *hold) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.PersistentVolumeClaim, error) {
	if err := h.call(ctx); err != nil {
		return nil, err
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: name},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	switch name {
	case "gone":
		return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), name)
	case "broken":
		return nil, apierrors.NewTimeoutError("etcd", 1)
	case "unbound":
		claim.Status.Phase = corev1.ClaimPending
	}
	return claim, nil
}

type holdVolumes struct {
	corev1client.PersistentVolumeInterface
	h *hold
}

func (v holdVolumes) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.PersistentVolume, error) {
	if err := v.h.call(ctx); err != nil {
		return nil, err
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if name == "local" {
		volume.Spec.Local = &corev1.LocalVolumeSource{Path: "/mnt/disk"}
	}
	return volume, nil
}

// An agent's word alone, or that of whoever has its token, ends no pod that could
// only come back to its disk.
func TestRefusePodWithLocalVolume(t *testing.T) {
	many := func(last string) (list []string) {
		for i := range 1000 {
			list = append(list, fmt.Sprintf("c%03d", i))
		}
		return append(list, last)
	}
	for what, row := range map[string]struct {
		claims []string
		result lease.Result
		code   Code
		why    string
		asked  int64
		waits  bool // the pod has not started
	}{
		"it has none":                         {nil, lease.Accepted, "", "", 0, false},
		"a disk of the node":                  {[]string{"everywhere", "local"}, lease.Refused, CodeProtected, "its volume local is a disk of this node", 4, false},
		"one that is everywhere":              {[]string{"everywhere"}, lease.Accepted, "", "", 2, false},
		"one that was deleted in use":         {[]string{"gone"}, lease.Accepted, "", "", 1, false},
		"one that is not bound":               {[]string{"unbound"}, lease.Accepted, "", "", 1, false},
		"one that its pod waits for":          {[]string{"unbound"}, lease.Blocked, CodeUnresolved, "unknown where the volume of claim unbound can be used", 1, true},
		"one that cannot be read now":         {[]string{"broken"}, lease.Blocked, CodeUnresolved, "unknown where the volume of claim broken can be used", 1, false},
		"nor one, and another is a disk":      {[]string{"broken", "local"}, lease.Refused, CodeProtected, "its volume local is a disk of this node", 3, false},
		"of a thousand so many are looked up": {many("local"), lease.Accepted, "", "", 2 * 32, false},
	} {
		t.Run(what, func(t *testing.T) {
			s, h := newFixture(t), &hold{}
			s.r.Volumes.Claims, s.r.Volumes.Volumes = h, h
			s.node("n", "web")
			if row.waits {
				s.pods["web"].Status.Phase = corev1.PodPending
			}
			for _, name := range row.claims {
				s.pods["web"].Spec.Volumes = append(s.pods["web"].Spec.Volumes, claim(name))
			}
			s.asks("n", lease.Request{UID: "web", Namespace: "shop", Name: "web", Since: lease.Micro(noon)})
			s.r.round(t.Context())
			assert.Equal(t, row.asked, h.asked.Load())
			got := s.answers("n")
			require.Len(t, got, 1)
			assert.Equal(t, row.result, got[0].Result, got[0].Reason)
			assert.Contains(t, got[0].Reason, row.why)
			assert.Equal(t, string(row.code), got[0].Code)
			assert.Equal(t, row.code == "", len(s.posted) == 1)
			assert.Equal(t, row.code == CodeUnresolved, got[0].RetryAfterSeconds == 30)
		})
	}
}

// A tenant chooses how many claims its pod has, and nobody how long a call takes.
func TestRefuseVolumesUnknownDelaysNoOther(t *testing.T) {
	for what, row := range map[string]struct {
		claims int
		takes  time.Duration
		times  int // that it is asked for until it goes; 0: it never does
	}{
		"as many as are looked up":        {32, 16 * time.Millisecond, 1},
		"what was said is not asked anew": {32, 90 * time.Millisecond, 2},
		"the API server hangs":            {1, time.Hour, 0},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, h := newFixture(t), &hold{takes: row.takes}
				s.r.Volumes.Claims, s.r.Volumes.Volumes = h, h
				s.node("n", "dear", "web")
				for i := range row.claims {
					s.pods["dear"].Spec.Volumes = append(s.pods["dear"].Spec.Volumes, claim(fmt.Sprint("c", i)))
				}
				result := func(uid string) lease.Result {
					list := s.answers("n")
					i := slices.IndexFunc(list, func(a lease.Answer) bool { return a.UID == uid })
					require.GreaterOrEqual(t, i, 0, "%s has no answer: %+v", uid, list)
					return list[i].Result
				}
				for asked := 1; asked <= 3; asked++ {
					ask := func(uid string) lease.Request {
						return lease.Request{UID: uid, Namespace: "shop", Name: uid, Since: lease.Micro(time.Now())}
					}
					s.asks("n", ask("dear"), ask("web"))
					s.r.round(t.Context())
					assert.Equal(t, lease.Accepted, result("web"), "in the same look")
					if row.times == asked {
						assert.Equal(t, lease.Accepted, result("dear"))
						return
					}
					assert.Equal(t, lease.Blocked, result("dear"))
					time.Sleep(30 * time.Second)
				}
				assert.Zero(t, row.times)
			})
		})
	}
}

// Of a pod that stays anyway nothing is asked: a flood of requests is none of
// claims.
func TestVolumesReadOnlyForEvictablePod(t *testing.T) {
	s, h := newFixture(t), &hold{}
	s.r.Volumes.Claims, s.r.Volumes.Volumes = h, h
	s.node("n", "web", "db")
	for _, name := range []string{"web", "db"} {
		s.pods[name].Spec.Volumes = []corev1.Volume{claim("everywhere")}
	}
	s.pods["db"].OwnerReferences = nil
	s.r.journal.evictions = []PastEviction{{UID: "before", Owner: "shop/ReplicaSet/web", Time: time.Now()}}
	s.asks("n",
		lease.Request{UID: "db", Namespace: "shop", Name: "db", Since: lease.Micro(noon)},
		lease.Request{UID: "web", Namespace: "shop", Name: "web", Since: lease.Micro(noon)},
		lease.Request{UID: "other", Namespace: "shop", Name: "web", Since: lease.Micro(noon)})
	s.r.round(t.Context())
	require.Len(t, s.answers("n"), 3)
	assert.Empty(t, s.posted)
	assert.Zero(t, h.asked.Load())
}
