package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// leaseOf is the Lease of the world's agent.
func (w *world) leaseOf(namespace string) (*coordinationv1.Lease, error) {
	return w.c.Client.CoordinationV1().Leases(namespace).Get(w.t.Context(), w.node, metav1.GetOptions{})
}

// renewed waits until the Lease is renewed so often.
func (w *world) renewed(namespace string, times int) *coordinationv1.Lease {
	w.t.Helper()
	var last *coordinationv1.Lease
	eventually(w.t, fmt.Sprintf("the lease is renewed %d times", times), func() error {
		l, err := w.leaseOf(namespace)
		if err != nil {
			return err
		}
		if last == nil || !l.Spec.RenewTime.Equal(last.Spec.RenewTime) {
			last = l
			times--
		}
		if times >= 0 {
			return fmt.Errorf("%d more", times)
		}
		return nil
	})
	return last
}

func TestLeaseRenewedWithPressure(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	w.start()
	l := w.renewed(lease.Namespace, 3)
	assert.Equal(t, w.node, *l.Spec.HolderIdentity)
	assert.EqualValues(t, 4, *l.Spec.LeaseDurationSeconds)
	assert.EqualValues(t, 0, *l.Spec.LeaseTransitions)
	require.Len(t, l.OwnerReferences, 1)
	assert.Equal(t, w.getNode().UID, l.OwnerReferences[0].UID)
	c, err := lease.ReadContent(l.Annotations)
	require.NoError(t, err)
	assert.Empty(t, c.Report.Pressure)

	w.press(true)
	var seen time.Time
	eventually(t, "the pressure is judged", func() error {
		if v := w.agent.pressure().memory(t); v.Level.String() != "hard" {
			return fmt.Errorf("%s", v.Level)
		}
		seen = time.Now()
		return nil
	})
	eventually(t, "the lease carries it", func() error {
		l, err := w.leaseOf(lease.Namespace)
		require.NoError(t, err)
		c, err := lease.ReadContent(l.Annotations)
		require.NoError(t, err)
		if c.Report.Pressure["memory"] != "hard" {
			return fmt.Errorf("%v", c.Report)
		}
		return nil
	})
	t.Logf("carried %s after it was seen judged", time.Since(seen).Round(time.Millisecond))
	w.calm()
	eventually(t, "and carries it no more", func() error {
		l, err := w.leaseOf(lease.Namespace)
		require.NoError(t, err)
		c, err := lease.ReadContent(l.Annotations)
		require.NoError(t, err)
		if len(c.Report.Pressure) > 0 || c.Report.DataMoverBudget != nil {
			return fmt.Errorf("%v", l.Annotations)
		}
		return nil
	})
}
