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

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// openAfterStart is how long after its start an API server may not know the kind
// of the Gate: it looks for kinds every 30 s. Twice that is given.
const openAfterStart = 60 * time.Second

// The short form restarts the API server once.
func restarts() int {
	if os.Getenv("PLIMSOLL_LONG") != "" {
		return 10
	}
	return 1
}

func TestTheGateComesBackAfterEveryWayOfLosingIt(t *testing.T) {
	c := cluster.New(t, cluster.Options{Without: []string{cluster.ControllerManager, cluster.Scheduler}})
	q := newQuay(t, c)
	q.gate(gate.Main, fresh(nil))
	_, err := q.load("DataUpload", "l", "")
	require.NoError(t, err)
	accepted := func() string { return q.accepts("DataUpload", "l", "n1") }
	q.until(held, accepted)

	t.Run("the API server starts anew", func(t *testing.T) {
		q := q.in(t)
		for range restarts() {
			require.NoError(t, c.APIServers[0].Stop(t.Context()))
			require.NoError(t, c.APIServers[0].Start())
			require.NoError(t, c.APIServers[0].WaitReady(t.Context()))
			open, unavailable := q.openFor(false)
			t.Logf("open for %s after the start; new loads were refused for %s", open.Round(time.Millisecond), unavailable.Round(time.Millisecond))
			assert.Less(t, open, openAfterStart)
			assert.Zero(t, unavailable, "nothing is hidden, so nothing can be refused")
		}
	})
	t.Run("and while loads are hidden", func(t *testing.T) {
		q := q.in(t)
		q.gate(gate.Main, fresh(quiet))
		require.NoError(t, c.APIServers[0].Stop(t.Context()))
		require.NoError(t, c.APIServers[0].Start())
		require.NoError(t, c.APIServers[0].WaitReady(t.Context()))
		open, unavailable := q.openFor(true)
		t.Logf("open for %s after the start; new loads were refused for %s", open.Round(time.Millisecond), unavailable.Round(time.Millisecond))
		assert.Less(t, open, openAfterStart)
		q.gate(gate.Main, fresh(nil))
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
		require.NoError(t, c.Apply(t.Context(), []byte(strings.ReplaceAll(string(Gate), "duration('30m')", "duration('1s')"))))
		q.until(passes, accepted)
		require.NoError(t, c.Apply(t.Context(), Gate))
		q.until(held, accepted)
	})
	t.Run("everything is removed at once", func(t *testing.T) {
		q := q.in(t)
		q.remove(Gate, GateMutating, GateCRD)
		q.until(passes, accepted)
	})
}

// openFor says how long it is until a load is held again, or hidden, and for
// how long new ones cannot be made. It looks at both until the first holds.
func (q *quay) openFor(hides bool) (open, unavailable time.Duration) {
	q.t.Helper()
	begun := time.Now()
	eventually(q.t, "loads are held", func() error {
		u, err := q.load("DataDownload", "new-", "")
		if apierrors.IsServiceUnavailable(err) {
			unavailable = time.Since(begun)
			return err
		}
		require.NoError(q.t, err)
		if hides && mover(u) != hiddenNoName {
			return fmt.Errorf("a new one is not hidden")
		}
		if is := q.accepts("DataUpload", "l", "n1"); is != held {
			return fmt.Errorf("it %s", is)
		}
		return nil
	})
	return time.Since(begun), unavailable
}

// remove every object of the manifests.
func (q *quay) remove(manifests ...[]byte) {
	q.t.Helper()
	client, err := dynamic.NewForConfig(q.c.Admin)
	require.NoError(q.t, err)
	for _, o := range objects(q.t, manifests...) {
		err := client.Resource(o.resource).Delete(q.t.Context(), o.name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			require.NoError(q.t, err)
		}
	}
}
