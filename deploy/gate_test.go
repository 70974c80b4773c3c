package deploy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// gates that a namespace of Velero's may have, and whether loads without a
// ticket are held by each.
func gates() []struct {
	name  string
	set   func(*gateFixture)
	holds bool
} {
	main := func(change func(*gate.Spec)) func(*gateFixture) {
		return func(q *gateFixture) { q.gate(gate.Main, fresh(change)) }
	}
	return []struct {
		name  string
		set   func(*gateFixture)
		holds bool
	}{
		{"a fresh Gate", main(nil), true},
		{"none", func(q *gateFixture) { q.noGate(gate.Main) }, false},
		{"a fresh one again", main(nil), true},
		{"a stale Gate", main(stale), false},
		{"one that was renewed", main(nil), true},
		{"one that limits nothing", main(func(s *gate.Spec) { s.Limited = false }), false},
		{"one that limits again", main(nil), true},
		{"one without a time", main(func(s *gate.Spec) { s.RenewTime = nil }), false},
		{"one that limits again", main(nil), true},
		{"one without a duration", main(func(s *gate.Spec) { s.LeaseDurationSeconds = 0 }), false},
	}
}

// when a load is held, what becomes of its write.
func when(holds bool) string { return map[bool]string{true: held, false: passes}[holds] }

// loads of every kind, each named after the ticket that it has in this annotation.
func (q *gateFixture) loads(key string, tickets map[string]string) {
	q.t.Helper()
	for kind := range kinds {
		for name, ticket := range tickets {
			_, err := q.load(kind, name, "")
			require.NoError(q.t, err)
			if ticket != "" {
				q.annotate(kind, name, key, ticket)
			}
		}
	}
}

func TestGateAcceptNeedsTicket(t *testing.T) {
	q := newGateFixture(t, plane(t))
	tickets := map[string]string{
		"none": "", "any-7": "*@7", "n1-7": "n1@7", "n2-7": "n2@7", "any-6": "*@6", "n1-6": "n1@6", "bad": "n1", "nobody-7": "@7",
	}
	q.loads(gate.Admitted, tickets)
	for _, g := range gates() {
		t.Run(g.name, func(t *testing.T) {
			q := q.in(t)
			g.set(q)
			q.until(when(g.holds), func() string { return q.accepts("DataUpload", "none", "n1") })
			for kind := range kinds {
				for name := range tickets {
					for _, node := range []string{"n1", "n2"} {
						waits := g.holds && name != "any-7" && name != node+"-7"
						assert.Equal(t, when(waits), q.accepts(kind, name, node), "%s with ticket %s on %s", kind, name, node)
					}
				}
			}
		})
	}
}

func TestGateHoldsOnlyAcceptOfVeleroLoads(t *testing.T) {
	q := newGateFixture(t, plane(t))
	for kind := range kinds {
		_, err := q.load(kind, "ours", "")
		require.NoError(t, err)
		_, err = q.load(kind, "theirs", map[bool]string{true: "acme.io/mover", false: ""}[kind[0] == 'D'])
		require.NoError(t, err)
	}
	q.gate(gate.Main, fresh(nil))
	q.until(held, func() string { return q.accepts("DataUpload", "ours", "n1") })
	for kind := range kinds {
		q.phase(kind, "ours", "New")
		assert.Equal(t, held, q.accepts(kind, "ours", "n1"), "%s that is New", kind)
		for _, phase := range []string{"Canceling", "Canceled", "Failed"} {
			assert.Equal(t, passes, q.became(q.patch(q.velero, kind, "ours", `{"status":{"phase":"`+phase+`"}}`, metav1.DryRunAll)), "%s to %s", kind, phase)
		}
		assert.Equal(t, passes, q.became(q.patch(q.velero, kind, "ours", `{"metadata":{"labels":{"a":"b"},"annotations":{"plimsoll.dev/priority":"5"}}}`, metav1.DryRunAll)), kind)
	}
	assert.Equal(t, held, q.became(q.patch(q.controller, "DataUpload", "ours",
		`{"metadata":{"annotations":{"plimsoll.dev/admitted":"*@7"},"labels":{"velero.io/expose-on-going":"true"}},"status":{"phase":"Accepted","acceptedByNode":"n1"}}`, metav1.DryRunAll)), "with the ticket that it brings along")
	assert.Equal(t, passes, q.accepts("DataUpload", "theirs", "n1"), "of another data mover")
	assert.Equal(t, passes, q.accepts("DataDownload", "theirs", "n1"), "of another data mover")
	assert.Equal(t, held, q.accepts("PodVolumeBackup", "theirs", "n1"), "they have no mover")
}

func TestGateStartHoldNeedsTicket(t *testing.T) {
	q := newGateFixture(t, plane(t))
	tickets := map[string]string{"none": "", "n1-7": "n1@7", "n2-7": "n2@7", "any-7": "*@7", "n1-6": "n1@6"}
	q.loads(gate.Started, tickets)
	for kind := range kinds {
		for name := range tickets {
			q.phase(kind, name, "Prepared")
		}
	}
	until := func(nodes map[string]time.Duration) gate.Spec {
		s := gate.Spec{Epoch: 7, Holds: map[string]metav1.Time{}}
		for node, after := range nodes {
			s.Holds[node] = metav1.NewTime(time.Now().Add(after))
		}
		return s
	}
	for _, g := range []struct {
		name  string
		set   func()
		holds bool
	}{
		{"n1 holds", func() { q.gate(gate.Holds, until(map[string]time.Duration{"n1": lease})) }, true},
		{"its hold has lapsed", func() { q.gate(gate.Holds, until(map[string]time.Duration{"n1": -time.Minute})) }, false},
		{"n1 holds again", func() { q.gate(gate.Holds, until(map[string]time.Duration{"n1": lease, "n3": lease})) }, true},
		{"another holds", func() { q.gate(gate.Holds, until(map[string]time.Duration{"n3": lease})) }, false},
		{"n1 holds once more", func() { q.gate(gate.Holds, until(map[string]time.Duration{"n1": lease})) }, true},
		{"there is no such Gate", func() { q.noGate(gate.Holds) }, false},
	} {
		t.Run(g.name, func(t *testing.T) {
			q := q.in(t)
			g.set()
			q.until(when(g.holds), func() string { return q.starts("DataUpload", "none", "n1") })
			for kind := range kinds {
				for name := range tickets {
					assert.Equal(t, when(g.holds && name != "n1-7"), q.starts(kind, name, "n1"), "%s with ticket %s", kind, name)
					assert.Equal(t, passes, q.starts(kind, name, "n2"), "%s with ticket %s on n2", kind, name)
				}
			}
		})
	}
}

func TestGateOnlyControllerWritesTickets(t *testing.T) {
	q := newGateFixture(t, plane(t))
	q.gate(gate.Main, fresh(nil))
	for kind := range kinds {
		_, err := q.load(kind, "l", "")
		require.NoError(t, err)
		q.until(refused, func() string {
			return q.became(q.patch(q.velero, kind, "l", annotation(gate.Admitted, "n1@7"), metav1.DryRunAll))
		})
		for _, key := range []string{gate.Admitted, gate.Started, gate.Waiting, gate.PostponedUntil, gate.Diagnosis, gate.OriginalDataMover} {
			assert.Equal(t, refused, q.became(q.patch(q.velero, kind, "l", annotation(key, "n1@7"), metav1.DryRunAll)), "%s %s", kind, key)
			assert.Equal(t, passes, q.became(q.patch(q.controller, kind, "l", annotation(key, "n1@7"), metav1.DryRunAll)), "%s %s", kind, key)
		}
		assert.Equal(t, passes, q.became(q.patch(q.velero, kind, "l", annotation(gate.Priority, "3"), metav1.DryRunAll)), "%s: the user's", kind)
		q.annotate(kind, "l", gate.Admitted, "*@7")
		assert.Equal(t, refused, q.became(q.patch(q.velero, kind, "l", `{"metadata":{"annotations":null}}`, metav1.DryRunAll)), "%s: taken away", kind)
		assert.Equal(t, passes, q.became(q.patch(q.velero, kind, "l", `{"metadata":{"labels":{"a":"b"}}}`, metav1.DryRunAll)), "%s: left alone", kind)
	}
	_, err := q.load("DataUpload", "bare", "")
	require.NoError(t, err)
	q.noGate(gate.Main)
	q.until(passes, func() string {
		return q.became(q.patch(q.velero, "DataUpload", "bare", annotation(gate.Waiting, "x"), metav1.DryRunAll))
	})
}
