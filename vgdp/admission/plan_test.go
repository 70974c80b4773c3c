package admission

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/plimsoll-dev/plimsoll/counters"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// observed is a Velero whose Gate limits, with one slot and a node with room for one, and
// so many new DataUploads.
func observed(uploads int) *observation {
	o := &observation{
		Input: vgdp.Input{
			Time: noon(), Veleros: map[string]vgdp.Velero{"velero": {Epoch: 7, PrepareLimit: 1}},
			Topology: vgdp.NewTopology([]vgdp.Node{{Features: vgdp.Features{Name: "n1"}, Agents: map[string]vgdp.Agent{"velero": {Ready: true, Concurrency: 1}}}}),
		},
		objects: map[string]*Object{}, facts: map[string]*vgdp.Facts{}, hideAbove: 2,
		gates: map[string]gateState{"velero": {epoch: 7, main: &gate.Gate{Spec: gate.Spec{Limited: true, LeaseDurationSeconds: 30, RenewTime: new(metav1.NewMicroTime(noon()))}}}},
		tests: map[string]lastTests{"velero": {accept: noon(), release: noon()}},
	}
	for i := range uploads {
		l := vgdp.Load{UID: fmt.Sprint(i), Name: fmt.Sprint("du", i), Namespace: "velero", Kind: vgdp.DataUpload, Created: noon().Add(time.Duration(i-100) * time.Second), Place: vgdp.Place{}}
		o.Loads = append(o.Loads, l)
		o.objects[l.UID] = &Object{Load: l}
	}
	return o
}

func kindsOf(list []edit) map[Kind]int {
	all := map[Kind]int{}
	for _, e := range list {
		all[e.kind]++
	}
	return all
}

func TestDecide(t *testing.T) {
	t.Run("what waits beyond the bound is hidden, with its note where it cannot be", func(t *testing.T) {
		p, err := decide(observed(4))
		require.NoError(t, err)
		assert.True(t, p.desired["velero"].limited)
		assert.Equal(t, map[Kind]int{KindAdmit: 1, KindHide: 3}, kindsOf(p.edits))
		for _, e := range p.edits[1:] {
			require.NotNil(t, e.instead)
			assert.Equal(t, KindNote, e.instead.kind)
			assert.Same(t, e.load, e.instead.load)
		}
		assert.Empty(t, p.tests, "none is due")
	})
	t.Run("up to the bound they are told why they wait", func(t *testing.T) {
		p, err := decide(observed(3))
		require.NoError(t, err)
		assert.Equal(t, map[Kind]int{KindAdmit: 1, KindNote: 2}, kindsOf(p.edits))
	})
	t.Run("due tests are made with a load that waits, once for each Velero", func(t *testing.T) {
		o := observed(4)
		o.tests["velero"] = lastTests{}
		p, err := decide(o)
		require.NoError(t, err)
		require.Len(t, p.tests["velero"], 2)
		assert.False(t, p.tests["velero"][0].release)
		assert.True(t, p.tests["velero"][1].release)
		for _, test := range p.tests["velero"] {
			assert.Same(t, o.objects[test.load.UID], test.object)
		}
		o.tests["velero"] = lastTests{accept: noon().Add(time.Hour), release: noon().Add(time.Hour)}
		p, err = decide(o)
		require.NoError(t, err)
		assert.Len(t, p.tests["velero"], 2, "the API server's clock was set back")
		o.hideAbove = 3
		p, err = decide(o)
		require.NoError(t, err)
		require.Len(t, p.tests["velero"], 1, "nothing is to be hidden")
		assert.False(t, p.tests["velero"][0].release)
	})
	t.Run("a Gate without an epoch is not tested and hides nothing", func(t *testing.T) {
		o := observed(4)
		o.tests["velero"] = lastTests{}
		o.gates["velero"] = gateState{main: &gate.Gate{}}
		p, err := decide(o)
		require.NoError(t, err)
		assert.Empty(t, p.tests)
		assert.Zero(t, kindsOf(p.edits)[KindHide])
	})
	t.Run("a hidden load that is too old for the policies is released", func(t *testing.T) {
		o := observed(1)
		o.Loads[0].Hidden, o.Loads[0].Created = true, noon().Add(-gate.MaxHold)
		o.Loads[0].NotReady = "its claim does not exist"
		p, err := decide(o)
		require.NoError(t, err)
		assert.Equal(t, 1, kindsOf(p.edits)[KindRelease])
		o.Loads[0].Created = o.Loads[0].Created.Add(time.Second)
		p, err = decide(o)
		require.NoError(t, err)
		assert.Zero(t, kindsOf(p.edits)[KindRelease])

		o.Loads[0].Created = noon().Add(-10 * time.Hour)
		o.Loads[0].Note.PostponedUntil = noon().Add(time.Hour)
		p, err = decide(o)
		require.NoError(t, err)
		assert.Zero(t, kindsOf(p.edits)[KindRelease], "it is postponed")
	})
	t.Run("a load on its way is progress", func(t *testing.T) {
		o := observed(1)
		p, _ := decide(o)
		assert.False(t, p.progress["velero"])
		o.Loads[0].Phase, o.Loads[0].Mover = vgdp.Accepted, "velero"
		p, _ = decide(o)
		assert.True(t, p.progress["velero"])
		o.Loads[0].Phase = vgdp.InProgress
		for kind, timeout := range map[vgdp.Kind]time.Duration{vgdp.DataDownload: 0, vgdp.PodVolumeRestore: vgdp.VeleroTimeout} {
			for age, is := range map[time.Duration]bool{5 * time.Hour: true, vgdp.LongestRun: false} {
				o.Loads[0].Kind, o.Loads[0].Timeout, o.Loads[0].Created = kind, timeout, noon().Add(-age)
				p, _ = decide(o)
				assert.Equal(t, is, p.progress["velero"], "%s %s", kind, age)
			}
		}
	})
	t.Run("a diagnosis is written where it differs", func(t *testing.T) {
		o := observed(1)
		o.Loads[0].Phase, o.Loads[0].Node, o.Loads[0].AcceptedAt = vgdp.Accepted, "gone", noon().Add(-time.Hour)
		o.facts["0"] = &vgdp.Facts{Kind: vgdp.DataUpload}
		p, err := decide(o)
		require.NoError(t, err)
		require.Equal(t, map[Kind]int{KindDiagnose: 1}, kindsOf(p.edits))
		assert.Contains(t, p.stuck, "0")
		o.objects["0"].Diagnosis = p.edits[0].annotations[gate.Diagnosis].(string)
		p, err = decide(o)
		require.NoError(t, err)
		assert.Empty(t, p.edits)
	})
	t.Run("a note that cannot be written costs its own load alone", func(t *testing.T) {
		never := time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -23*3600)) // in UTC the year 10000
		for i, row := range []struct {
			uploads, of int
			want        map[Kind]int
		}{
			{3, 0, map[Kind]int{KindNote: 2}},
			{3, 1, map[Kind]int{KindAdmit: 1, KindNote: 1}},
			{4, 2, map[Kind]int{KindAdmit: 1, KindHide: 2}},
		} {
			o := observed(row.uploads)
			o.Loads[row.of].Note = vgdp.Note{PressureSince: never}
			p, err := decide(o)
			require.ErrorContains(t, err, "year outside of range", i)
			assert.Equal(t, row.want, kindsOf(p.edits), i)
		}
	})
	t.Run("an observation is not changed, and decides the same again", func(t *testing.T) {
		o := observed(5)
		first, err := decide(o)
		require.NoError(t, err)
		second, err := decide(o)
		require.NoError(t, err)
		assert.Equal(t, kindsOf(first.edits), kindsOf(second.edits))
		assert.Equal(t, first.desired, second.desired)
		assert.Equal(t, observed(5).Loads, o.Loads)
	})
}

type noEvents struct{}

func (noEvents) Event(runtime.Object, string, string, string) {}

func TestLogOfWait(t *testing.T) {
	var log bytes.Buffer
	p := publisher{log: slog.New(slog.NewTextHandler(&log, nil)), events: noEvents{}, counters: &counters.Group[Counts]{}, clock: &clock{}}
	l := &vgdp.Load{Name: "a", Namespace: "velero", Kind: vgdp.DataUpload}
	p.logWrite(&edit{load: l, kind: KindNote, wait: &vgdp.Wait{Code: vgdp.CodeFull, Node: "n1", Count: 1}})
	assert.Contains(t, log.String(), `msg="data mover load waits" load="DataUpload velero/a" reason="the concurrency limit is reached on node n1" code=full blockedBy="Node n1" hidden=false`)
}
