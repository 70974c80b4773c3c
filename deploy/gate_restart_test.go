package deploy

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// openAfterStart is how long after its start an API server may not know the kind
// of the Gate: it looks for kinds every 30 s. Twice that is given.
const openAfterStart = 60 * time.Second

// knowsKinds is after how long it knows those of loads, for which it looks every
// 5 s.
const knowsKinds = 6 * time.Second

// The short form restarts the API server once.
func restarts() int {
	if os.Getenv("PLIMSOLL_LONG") != "" {
		return 10
	}
	return 1
}

// It ends without any of it: whoever needs the Gate installs it.
func TestGateComesBack(t *testing.T) {
	c := plane(t)
	q := newGateFixture(t, c)
	q.gate(gate.Main, fresh(nil))
	_, err := q.load("DataUpload", "l", "")
	require.NoError(t, err)
	accepted := func() string { return q.accepts("DataUpload", "l", "n1") }
	q.until(held, accepted)
	require.Equal(t, hides[""], q.hidden("DataUpload", "hidden", ""))

	t.Run("the API server starts anew", func(t *testing.T) {
		q := q.in(t)
		for range restarts() {
			require.NoError(t, c.APIServers[0].Stop(t.Context()))
			require.NoError(t, c.APIServers[0].Start())
			require.NoError(t, c.APIServers[0].WaitReady(t.Context()))
			clock := deadline.Start()
			open, made := q.openFor()
			t.Logf("open for %s after the start; meanwhile %d new loads were made", open.Round(time.Millisecond), made)
			assert.Less(t, open, clock.Stretch(openAfterStart))
		}
	})
	t.Run("the policies are installed anew", func(t *testing.T) {
		q := q.in(t)
		q.annotate("DataUpload", "l", gate.Admitted, "*@8")
		q.remove(Gate)
		q.until(passes, accepted)
		require.NoError(t, c.Apply(t.Context(), Gate))
		q.until(held, accepted)
		// The API server's copy of the Gate is not the one it had before.
		q.gate(gate.Main, fresh(func(s *gate.Spec) { s.Epoch = 8 }))
		q.until(passes, accepted)
		q.gate(gate.Main, fresh(nil))
		q.until(held, accepted)
	})
	t.Run("the Gate's kind is installed anew", func(t *testing.T) {
		q := q.in(t)
		q.remove(GateCRD)
		q.until(passes, accepted)
		require.NoError(t, c.Apply(t.Context(), GateCRD))
		eventually(t, "the Gate is there again", func() error { return q.tryGate(gate.Main, fresh(nil)) })
		begun := time.Now()
		q.until(held, accepted)
		t.Logf("held again %s after the kind was back", time.Since(begun).Round(time.Millisecond))
	})
	t.Run("no load is held for longer than its time", func(t *testing.T) {
		q := q.in(t)
		progress := func(at time.Duration) func(*gate.Spec) {
			return func(s *gate.Spec) { s.ProgressTime = &metav1.MicroTime{Time: time.Now().Add(at)} }
		}
		q.gate(gate.Holds, gate.Spec{Epoch: 7, Holds: map[string]metav1.Time{"n1": metav1.NewTime(time.Now().Add(lease))}})
		for name, at := range map[string]time.Duration{"long-ago": -time.Hour, "not-long-ago": time.Hour} {
			_, err := q.load("DataUpload", name, "")
			require.NoError(t, err)
			require.NoError(t, q.patch(q.velero, "DataUpload", name, fmt.Sprintf(`{"status":{"phase":"Prepared","acceptedTimestamp":%q}}`, time.Now().Add(at).UTC().Format(time.RFC3339))))
		}
		short := strings.ReplaceAll(string(Gate)+"---\n"+string(GateMutating), "duration('30m')", "duration('1s')")
		require.NoError(t, c.Apply(t.Context(), []byte(short)))
		q.until(passes, accepted)
		q.until(passes, func() string { return q.starts("DataUpload", "long-ago", "n1") })
		assert.Equal(t, held, q.starts("DataUpload", "not-long-ago", "n1"), "accepted less than its time ago")
		q.gate(gate.Main, fresh(progress(time.Hour)))
		q.until(held, accepted)
		assert.Equal(t, hides[""], q.hidden("DataUpload", "still-hidden", ""), "one was on its way less than that time ago")
		q.gate(gate.Main, fresh(progress(-time.Hour)))
		q.until(passes, accepted)
		q.until(isBack[""], func() string {
			require.NoError(t, q.patch(q.velero, "DataUpload", "still-hidden", fmt.Sprintf(`{"metadata":{"labels":{"touched":"%d"}}}`, time.Now().UnixNano())))
			return mover(q.get("DataUpload", "still-hidden"))
		})
		q.postponements(short)
		q.noGate(gate.Holds)
		q.gate(gate.Main, fresh(nil))
		require.NoError(t, c.Apply(t.Context(), GateMutating))
		require.NoError(t, c.Apply(t.Context(), Gate))
		q.until(held, accepted)
	})
	t.Run("everything is removed at once", func(t *testing.T) {
		q := q.in(t)
		q.remove(Gate, GateMutating, GateCRD)
		q.until(passes, accepted)
	})
}

// postponements of loads, with policies by which none is held for more than a second.
func (q *gateFixture) postponements(policies string) {
	q.t.Helper()
	until := func(after time.Duration) string { return time.Now().Add(after).UTC().Format(time.RFC3339) }
	for name, row := range map[string]struct{ until, becomes string }{
		"postponed": {until(time.Hour), held}, "was-postponed": {until(-time.Hour), passes}, "no-time": {"tomorrow", passes},
	} {
		for kind := range kinds {
			_, err := q.load(kind, name, "")
			require.NoError(q.t, err)
			q.annotate(kind, name, gate.PostponedUntil, row.until)
			q.until(row.becomes, func() string { return q.accepts(kind, name, "n1") })
		}
	}
	touched := func(name string) string {
		require.NoError(q.t, q.patch(q.velero, "DataUpload", name, fmt.Sprintf(`{"metadata":{"labels":{"touched":"%d"}}}`, time.Now().UnixNano())))
		return mover(q.get("DataUpload", name))
	}
	// Loads are hidden while another is on its way.
	q.gate(gate.Main, fresh(func(s *gate.Spec) { s.ProgressTime = &metav1.MicroTime{Time: time.Now().Add(time.Hour)} }))
	q.until(hides[""], func() string { return q.hidden("DataUpload", "new-", "") })
	for _, name := range []string{"hidden-later", "hidden-now"} {
		require.Equal(q.t, hides[""], q.hidden("DataUpload", name, ""))
	}
	q.annotate("DataUpload", "hidden-later", gate.PostponedUntil, until(time.Hour))
	q.gate(gate.Main, fresh(nil))
	q.until(isBack[""], func() string { return touched("hidden-now") })
	assert.Equal(q.t, hides[""], touched("hidden-later"))
	for kind := range kinds {
		assert.Equal(q.t, held, q.accepts(kind, "postponed", "n1"), "%s, longer ago than any other is held for", kind)
		q.annotate(kind, "postponed", gate.Admitted, "*@7")
		assert.Equal(q.t, passes, q.accepts(kind, "postponed", "n1"), "%s with a ticket", kind)
	}
	never := strings.ReplaceAll(policies, "duration('25h')", "duration('1s')")
	require.NoError(q.t, q.c.Apply(q.t.Context(), []byte(never)))
	q.until(isBack[""], func() string { return touched("hidden-later") })
	q.until(passes, func() string { return q.accepts("DataUpload", "hidden-later", "n1") })
}

// openFor says how long it is until a load is held again. New ones are made all
// the while, of which none may be refused: Velero makes them once.
func (q *gateFixture) openFor() (open time.Duration, made int) {
	q.t.Helper()
	begun := time.Now()
	one := func() {
		_, err := q.load("DataDownload", "new-", "")
		require.NoError(q.t, err, "%s after the start", time.Since(begun))
		made++
	}
	eventually(q.t, "loads are held", func() error {
		one()
		if is := q.accepts("DataUpload", "l", "n1"); is != held {
			return fmt.Errorf("it %s", is)
		}
		return nil
	})
	open = time.Since(begun)
	eventually(q.t, "the API server knows the kinds of loads", func() error {
		one()
		if time.Since(begun) < knowsKinds {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	return open, made
}

// remove every object of the manifests, and wait until they are gone.
func (q *gateFixture) remove(manifests ...[]byte) {
	q.t.Helper()
	client, err := dynamic.NewForConfig(q.c.Admin)
	require.NoError(q.t, err)
	for _, o := range objects(q.t, manifests...) {
		of := client.Resource(o.resource)
		if err := of.Delete(q.t.Context(), o.name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			require.NoError(q.t, err)
		}
		eventually(q.t, o.name+" is gone", func() error {
			if _, err := of.Get(q.t.Context(), o.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
	}
}
