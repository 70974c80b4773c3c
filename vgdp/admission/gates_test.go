package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// gates is an API server's Gates of one namespace: it takes a merge patch under
// the version that it has, and stamps it by its own clock.
type gates struct {
	dynamic.ResourceInterface
	all    map[string]*unstructured.Unstructured
	ahead  time.Duration // of its clock
	writes int
}

func newGates() *gates { return &gates{all: map[string]*unstructured.Unstructured{}} }

func (g *gates) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	u, is := g.all[name]
	if !is {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "gates"}, name)
	}
	return u.DeepCopy(), nil
}

func (g *gates) Create(_ context.Context, u *unstructured.Unstructured, _ metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
	if g.all[u.GetName()] != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "gates"}, u.GetName())
	}
	return g.store(u.DeepCopy()), nil
}

func (g *gates) Patch(_ context.Context, name string, _ types.PatchType, body []byte, o metav1.PatchOptions, _ ...string) (*unstructured.Unstructured, error) {
	was, is := g.all[name]
	if !is {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "gates"}, name)
	}
	var patch map[string]any
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, err
	}
	if version, _, _ := unstructured.NestedString(patch, "metadata", "resourceVersion"); version != was.GetResourceVersion() {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "gates"}, name, errAway)
	}
	u := was.DeepCopy()
	merge(u.Object["spec"].(map[string]any), patch["spec"].(map[string]any))
	if len(o.DryRun) > 0 {
		return g.stamp(u), nil
	}
	return g.store(u), nil
}

func merge(into, patch map[string]any) {
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(into, key)
		case map[string]any:
			if _, is := into[key].(map[string]any); !is {
				into[key] = map[string]any{}
			}
			merge(into[key].(map[string]any), value)
		default:
			into[key] = value
		}
	}
}

func (g *gates) store(u *unstructured.Unstructured) *unstructured.Unstructured {
	g.writes++
	u.SetResourceVersion(strconv.Itoa(g.writes))
	g.all[u.GetName()] = g.stamp(u)
	return u.DeepCopy()
}

func (g *gates) stamp(u *unstructured.Unstructured) *unstructured.Unstructured {
	stamp := metav1.NewTime(time.Now().Add(g.ahead).Truncate(time.Second))
	u.SetManagedFields([]metav1.ManagedFieldsEntry{
		{Manager: "kubectl", Time: new(metav1.NewTime(stamp.Add(100 * time.Hour)))},
		{Manager: reconcile.FieldManager},
		{Manager: reconcile.FieldManager, Time: &stamp},
		{Manager: reconcile.FieldManager, Time: new(metav1.NewTime(stamp.Add(-time.Hour)))},
	})
	return u
}

func (g *gates) keeper() *keeper { return &keeper{gates: g, lease: 40 * time.Second, clock: &clock{}} }

func TestGateEpochOfNewLeader(t *testing.T) {
	limited := desiredGates{limited: true}
	g := newGates()
	first, second := g.keeper(), g.keeper()
	require.NoError(t, first.renew(t.Context(), desiredGates{}, 3))
	assert.Zero(t, g.writes, "nothing is limited, and there is no Gate")
	require.NoError(t, first.renew(t.Context(), limited, 3))
	assert.EqualValues(t, 4, first.epoch, "above all tickets that there are")
	assert.WithinDuration(t, time.Now(), first.ticketsFrom, 5*time.Second, "no other held loads")
	assert.Equal(t, gate.Spec{Epoch: 4, Limited: true, LeaseDurationSeconds: 40, RenewTime: first.main.Spec.RenewTime}, first.main.Spec)

	require.NoError(t, second.read(t.Context()))
	require.NoError(t, second.renew(t.Context(), limited, 2))
	assert.EqualValues(t, 5, second.epoch, "above the one before")
	assert.WithinDuration(t, time.Now().Add(40*time.Second), second.ticketsFrom, 5*time.Second, "tickets of the one before may be used until then")

	due := metav1.NewMicroTime(time.Now().Add(-11 * time.Second))
	first.main.Spec.RenewTime = &due
	require.True(t, apierrors.IsConflict(first.renew(t.Context(), limited, 3)))
	assert.Zero(t, first.epoch, "it has lost its epoch")
	assert.EqualValues(t, 5, second.epoch)
	require.NoError(t, first.read(t.Context()))
	require.NoError(t, first.renew(t.Context(), limited, 9))
	assert.EqualValues(t, 10, first.epoch)
	delete(g.all, gate.Main)
	first.main.Spec.RenewTime = &due
	require.True(t, apierrors.IsNotFound(first.renew(t.Context(), limited, 9)))
	assert.Zero(t, first.epoch, "nor is it known when the Gate is gone")
	third, fourth := g.keeper(), g.keeper()
	later := g.keeper()
	require.NoError(t, third.renew(t.Context(), limited, 9))
	require.Error(t, fourth.renew(t.Context(), limited, 9), "another has made it meanwhile")
	assert.Zero(t, fourth.epoch)
	require.NoError(t, later.read(t.Context()))
	require.NoError(t, later.renew(t.Context(), desiredGates{}, 0))
	assert.Equal(t, third.epoch, later.main.Spec.Epoch, "who limits nothing claims none")
	assert.False(t, later.main.Spec.Limited)
}

func TestGateStaleHoldsNoLeader(t *testing.T) {
	renewed := metav1.NewMicroTime(noon())
	for what, row := range map[string]struct {
		main *gate.Gate
		now  time.Time
		held bool
	}{
		"there is none":          {nil, noon(), false},
		"it limits nothing":      {&gate.Gate{Spec: gate.Spec{RenewTime: &renewed, LeaseDurationSeconds: 30}}, noon(), false},
		"it was never renewed":   {&gate.Gate{Spec: gate.Spec{Limited: true, LeaseDurationSeconds: 30}}, noon(), false},
		"it was just renewed":    {&gate.Gate{Spec: gate.Spec{Limited: true, RenewTime: &renewed, LeaseDurationSeconds: 30}}, noon(), true},
		"a moment before it end": {&gate.Gate{Spec: gate.Spec{Limited: true, RenewTime: &renewed, LeaseDurationSeconds: 30}}, noon().Add(30*time.Second - 1), true},
		"it has ended":           {&gate.Gate{Spec: gate.Spec{Limited: true, RenewTime: &renewed, LeaseDurationSeconds: 30}}, noon().Add(30 * time.Second), false},
	} {
		assert.Equal(t, row.held, (&keeper{main: row.main}).held(row.now), what)
	}
}

func TestGateRenewedAndEnded(t *testing.T) {
	limited := desiredGates{limited: true}
	g := newGates()
	k := g.keeper()
	require.NoError(t, k.renew(t.Context(), limited, 0))
	ago := func(d time.Duration) { k.main.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-d))) }
	ago(9 * time.Second)
	require.NoError(t, k.renew(t.Context(), limited, 0))
	assert.Equal(t, 1, g.writes, "a quarter of its lease is not over")
	ago(11 * time.Second)
	k.progress = noon()
	require.NoError(t, k.renew(t.Context(), limited, 0))
	assert.Equal(t, 2, g.writes)
	assert.WithinDuration(t, time.Now(), k.main.Spec.RenewTime.Time, 5*time.Second)
	assert.True(t, k.main.Spec.ProgressTime.Time.Equal(noon()))
	assert.EqualValues(t, 1, k.main.Spec.Epoch)
	for range 2 {
		require.NoError(t, k.renew(t.Context(), desiredGates{}, 0))
		assert.Equal(t, 3, g.writes, "what limits nothing is not renewed")
		assert.False(t, k.main.Spec.Limited)
		assert.EqualValues(t, 1, k.main.Spec.Epoch, "its tickets stay what they are")
	}
	require.NoError(t, k.renew(t.Context(), limited, 0))
	assert.Equal(t, 4, g.writes, "at once, though it was renewed just now")
	assert.True(t, k.main.Spec.Limited)
}

func TestGateHoldsWrittenOnChange(t *testing.T) {
	until := metav1.NewTime(time.Now().Add(time.Minute).Truncate(time.Second))
	of := func(nodes ...string) desiredGates {
		w := desiredGates{holds: map[string]time.Time{}}
		for _, n := range nodes {
			w.holds[n] = until.Add(500 * time.Millisecond)
		}
		return w
	}
	g := newGates()
	k := g.keeper()
	require.NoError(t, k.writeHolds(t.Context(), desiredGates{steer: true}))
	assert.Zero(t, g.writes)
	into := map[string]time.Time{}
	k.heldInto(into)
	assert.Empty(t, into)
	steers := of("n1")
	steers.steer = true
	for i, row := range []struct {
		wish   desiredGates
		epoch  int64
		writes int
		holds  []string
		of     int64 // the epoch of what is written
	}{
		{of("n1", "n2"), 0, 1, []string{"n1", "n2"}, 1},
		{of("n1", "n2"), 0, 2, []string{"n1", "n2"}, 1}, // written as of epoch 1, which is not ours
		{of("n1", "n2"), 1, 2, []string{"n1", "n2"}, 1},
		{of("n1"), 1, 3, []string{"n1"}, 1},
		{steers, 1, 4, []string{"n1"}, 1},
		{steers, 1, 4, []string{"n1"}, 1},
		{of("n1"), 7, 5, []string{"n1"}, 7},
		{of(), 7, 6, nil, 7},
		{of(), 8, 6, nil, 7}, // the epoch of what holds nothing is not read
	} {
		k.epoch = row.epoch
		require.NoError(t, k.writeHolds(t.Context(), row.wish))
		assert.Equal(t, row.writes, g.writes, i)
		assert.Equal(t, row.of, k.holds.Spec.Epoch, i)
		assert.ElementsMatch(t, row.holds, namesOf(k.holds.Spec.Holds), i)
		require.NoError(t, k.read(t.Context()))
		assert.ElementsMatch(t, row.holds, namesOf(k.holds.Spec.Holds), i)
		for _, at := range k.holds.Spec.Holds {
			assert.True(t, at.Equal(&until))
		}
	}
	k.holds.Spec.Holds = map[string]metav1.Time{"n1": until, "n2": until}
	into["n2"] = until.Add(time.Hour)
	k.heldInto(into)
	assert.Equal(t, map[string]time.Time{"n1": until.Time, "n2": until.Add(time.Hour)}, into, "the later one")
}

func namesOf[V any](of map[string]V) (names []string) {
	for name := range maps.Keys(of) {
		names = append(names, name)
	}
	return names
}

func TestGateClockOfOwnWrite(t *testing.T) {
	g := newGates()
	g.ahead = -time.Hour
	k := g.keeper()
	require.NoError(t, k.renew(t.Context(), desiredGates{limited: true}, 0))
	assert.WithinDuration(t, time.Now().Add(-time.Hour), k.clock.now(), 5*time.Second)
	for stamp, want := range map[time.Duration]time.Duration{ // the answer came after 2 s
		0: 0, time.Second: 0, 1500 * time.Millisecond: time.Second, time.Hour: time.Hour - 500*time.Millisecond, -time.Hour: -time.Hour - 500*time.Millisecond,
	} {
		var c clock
		c.set(noon().Add(stamp), noon(), noon().Add(2*time.Second))
		assert.Equal(t, want, time.Duration(c.ahead.Load()), stamp)
	}
}

// Of a controller whose clock is wrong the Gate says what it says of another.
func TestGateTakenOverByWrongClock(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"20 min ahead": 20 * time.Minute, "45 s ahead": 45 * time.Second, "right": 0, "45 s behind": -45 * time.Second, "20 min behind": -20 * time.Minute} {
		for what, age := range map[string]time.Duration{"held": 30 * time.Second, "stale": 50 * time.Second, "none": 0} {
			t.Run(name+", "+what, func(t *testing.T) {
				g := newGates()
				g.ahead = -ahead // of the controller
				server := func() time.Time { return time.Now().Add(g.ahead) }
				if age > 0 {
					first := g.keeper()
					first.clock.ahead.Store(int64(g.ahead - age))
					require.NoError(t, first.renew(t.Context(), desiredGates{limited: true}, 0))
				}
				r, _ := veleroServer(t)
				v := newVelero(r, Velero{Namespace: "velero"})
				v.keeper.gates, v.keeper.lease = g, 40*time.Second
				require.NoError(t, v.adopt(t.Context(), true))
				assert.Equal(t, what == "held", v.desired.limited)
				v.desired.limited = true // as decided
				for range 2 {
					require.NoError(t, v.writeGates(t.Context()))
				}
				assert.WithinDuration(t, server(), v.keeper.main.Spec.RenewTime.Time, 5*time.Second)
				from := server()
				if what == "held" {
					from = from.Add(40 * time.Second)
				}
				assert.WithinDuration(t, from, v.keeper.ticketsFrom, 5*time.Second)
				assert.WithinDuration(t, server(), v.clock.now(), 5*time.Second)
			})
		}
	}
}

// A clock that is set delays neither renewals nor tickets.
func TestGateRenewedWhenClockIsSet(t *testing.T) {
	for name, by := range map[string]time.Duration{"forward": 20 * time.Minute, "back": -20 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			g := newGates()
			k := g.keeper()
			require.NoError(t, k.renew(t.Context(), desiredGates{limited: true}, 0))
			k.clock.ahead.Store(int64(by)) // as if this machine's had been set
			for range 3 {
				require.NoError(t, k.renew(t.Context(), desiredGates{limited: true}, 0))
			}
			assert.Equal(t, 3, g.writes, "one by the clock as it was set, one by the server's, and no more")
			assert.WithinDuration(t, time.Now(), k.main.Spec.RenewTime.Time, 5*time.Second)
			assert.WithinDuration(t, time.Now(), k.ticketsFrom, 5*time.Second)
			assert.Equal(t, k.ticketsFrom.Round(0), k.ticketsFrom, "a reading of the monotonic clock does not follow what is set")
		})
	}
}

// A second leader neither lets loads start on held nodes, nor holds these for longer than
// one lease duration by itself.
func TestGateTakenOver(t *testing.T) {
	r, _ := veleroServer(t)
	g := newGates()
	first := g.keeper()
	until := time.Now().Add(15 * time.Second)
	had := desiredGates{limited: true, steer: true, holds: map[string]time.Time{"n1": until, "n2": until}, away: []string{"n1", "n3"}}
	require.NoError(t, first.renew(t.Context(), had, 0))
	require.NoError(t, first.writeHolds(t.Context(), had))

	second := newVelero(r, Velero{Namespace: "velero"})
	second.keeper.gates, second.keeper.lease = g, 40*time.Second
	require.NoError(t, second.adopt(t.Context(), true))
	for range 2 {
		require.NoError(t, second.writeGates(t.Context()))
		is := g.keeper()
		require.NoError(t, is.read(t.Context()))
		assert.EqualValues(t, 2, is.holds.Spec.Epoch)
		assert.True(t, is.holds.Spec.Steer)
		assert.ElementsMatch(t, []string{"n1", "n2"}, namesOf(is.holds.Spec.Holds))
		assert.ElementsMatch(t, []string{"n1", "n3"}, namesOf(is.holds.Spec.Maintenance))
		for _, all := range []map[string]metav1.Time{is.holds.Spec.Holds, is.holds.Spec.Maintenance} {
			for node, until := range all {
				assert.WithinDuration(t, time.Now().Add(40*time.Second), until.Time, 5*time.Second, node)
			}
		}
	}
	assert.Equal(t, 4, g.writes, "once")

	second.desired = desiredGates{limited: true, holds: map[string]time.Time{"n2": until}} // as decided
	require.NoError(t, second.writeGates(t.Context()))
	assert.Equal(t, []string{"n2"}, namesOf(second.keeper.holds.Spec.Holds))
	assert.Empty(t, second.keeper.holds.Spec.Maintenance)
	assert.False(t, second.keeper.holds.Spec.Steer)
}

// What is not due is neither removed nor taken for written.
func TestGateMaintenanceBesideHolds(t *testing.T) {
	g := newGates()
	k := g.keeper()
	until := time.Now().Add(time.Minute)
	holds := func(nodes ...string) map[string]time.Time {
		all := map[string]time.Time{}
		for _, n := range nodes {
			all[n] = until
		}
		return all
	}
	for i, row := range []struct {
		wish  desiredGates
		ago   time.Duration // since what is away was written
		wrote bool
		away  []string
	}{
		{desiredGates{away: []string{"n1"}}, 0, true, []string{"n1"}},
		{desiredGates{away: []string{"n1"}, holds: holds("n2")}, 15 * time.Second, false, []string{"n1"}},
		{desiredGates{away: []string{"n1"}, holds: holds("n2", "n3")}, 21 * time.Second, true, []string{"n1"}},
		{desiredGates{away: []string{"n3"}, holds: holds("n2")}, 0, true, []string{"n3"}},
		{desiredGates{holds: holds("n2", "n3")}, 0, false, nil},
		{desiredGates{holds: holds("n3")}, 0, false, nil},
	} {
		last := time.Now().Add(-row.ago)
		k.awayWritten = last
		require.NoError(t, k.writeHolds(t.Context(), row.wish))
		assert.ElementsMatch(t, row.away, namesOf(k.holds.Spec.Maintenance), i)
		assert.Len(t, k.holds.Spec.Holds, len(row.wish.holds), i)
		if len(row.away) > 0 {
			assert.Equal(t, row.wrote, k.awayWritten.After(last), i)
		}
	}
}

// mainOnly are Gates of which holds cannot be written, or not be read either.
type mainOnly struct {
	*gates

	unread bool
}

func (m mainOnly) Get(ctx context.Context, name string, o metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if m.unread && name == gate.Holds {
		return nil, errAway
	}
	return m.gates.Get(ctx, name, o)
}

func (m mainOnly) Create(ctx context.Context, u *unstructured.Unstructured, o metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
	if u.GetName() == gate.Holds {
		return nil, errAway
	}
	return m.gates.Create(ctx, u, o)
}

// Where no tickets can be issued main is not renewed: it would hold loads for nothing.
func TestMainNotRenewedAlone(t *testing.T) {
	for name, unread := range map[string]bool{"holds not written": false, "holds not read": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { mainNotRenewedAlone(t, unread) })
		})
	}
}

func mainNotRenewedAlone(t *testing.T, unread bool) {
	t.Helper()
	s := &loadServer{t: t, version: 10, loads: map[string]*unstructured.Unstructured{}}
	for i := range 3 {
		s.add(fmt.Sprint("new", i), "")
	}
	r, v, g := listedBy(t, s, inProcess(s))
	if unread {
		r.reconcile(t.Context()) // both are made, and no ticket is issued yet
		v.gatesRead = false
	}
	v.keeper.gates = mainOnly{g, unread}
	for in := time.Duration(0); in < time.Minute; in += 5 * time.Second {
		twoRounds(t, r, s, g, in)
	}
	is := g.keeper()
	require.NoError(t, is.read(t.Context()))
	require.NotNil(t, is.main)
	assert.False(t, is.held(r.clock.now()), "it has become stale")
	assert.Zero(t, r.Counts().Writes[KindAdmit])
	assert.Contains(t, r.Reports()[0].Problem, errAway.Error())
	v.keeper.gates = g
	for range 3 {
		if r.reconcile(t.Context()); v.keeper.held(r.clock.now()) {
			break
		}
	}
	assert.True(t, v.keeper.held(r.clock.now()))
	if !unread { // else it is renewed before it is decided
		assert.Zero(t, r.Counts().Writes[KindAdmit], "that round has decided by a Gate that held nothing")
	}
	twoRounds(t, r, s, g, 65*time.Second)
	twoRounds(t, r, s, g, 65*time.Second)
	assert.True(t, v.keeper.held(r.clock.now()))
	assert.EqualValues(t, 1, r.Counts().Writes[KindAdmit])
	assert.Empty(t, r.Reports()[0].Problem)
}

// A leader that cannot write the start holds that it found decides all the same.
func TestWatchesWithoutHolds(t *testing.T) {
	r, _, g := listed(t, &loadServer{t: t})
	first := g.keeper()
	require.NoError(t, first.renew(t.Context(), desiredGates{limited: true}, 0))
	v := newVelero(r, r.Of[0])
	v.keeper.gates = mainOnly{gates: g}
	for _, starts := range []bool{false, true} {
		_, err := v.prepare(t.Context(), r.Settings(), nil, func(func()) {})
		require.ErrorIs(t, err, errAway)
		assert.Equal(t, starts, v.watching, "after one lease duration")
		r.clock.ahead.Store(int64(time.Minute))
		g.ahead = time.Minute
	}
}

// Where the API server's clock is set back, tickets are issued after one lease duration.
func TestTicketsAfterClockSetBack(t *testing.T) {
	r, _, g := listed(t, &loadServer{t: t})
	v := newVelero(r, r.Of[0])
	v.keeper.gates, v.desired.limited = g, true
	for _, ahead := range []time.Duration{2 * time.Hour, 0} {
		g.ahead = ahead
		_, err := v.prepare(t.Context(), r.Settings(), nil, func(func()) {})
		require.NoError(t, err)
	}
	assert.WithinDuration(t, time.Now().Add(r.Settings().LeaseDuration), v.keeper.ticketsFrom, 5*time.Second)
}
