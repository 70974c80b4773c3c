package backup

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/names"
)

// object is a Backup as the API server would have it.
func object(b Backup, waiting Waiting) *Object {
	b.Namespace, b.Name = "velero", "name-"+b.UID
	if b.Created.IsZero() {
		b.Created = noon
	}
	b.Version = max(b.Version, 7)
	o := &Object{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name, UID: types.UID(b.UID), ResourceVersion: "7"},
		Backup:     b, Waiting: waiting, Annotated: waiting.Reason != "",
	}
	if b.Phase == Ready {
		o.Backup.ReadySince = waiting.Since
	}
	return o
}

// planned are the writes for objects, as decided.
func planned(config Config, now time.Time, quiet bool, objects ...*Object) []write {
	in := Input{Time: now, Config: config, Namespaces: NewNamespaces([]string{"a", "b"}), Backups: Backups(objects), Exact: quiet}
	d := Decide(in)
	p := planner{now: now, config: config, quiet: quiet, objects: byUID(objects), refused: &Refusals{}}
	return p.writes(&d)
}

func body(t *testing.T, w write) string {
	t.Helper()
	b, err := w.patch.body(w.object.ResourceVersion)
	require.NoError(t, err)
	return string(b)
}

func TestBackupPatchOwnFieldsOfReadVersion(t *testing.T) {
	list := planned(Config{Limit: 1}, noon, false,
		object(Backup{UID: "1", Phase: Queued, Position: 1, Include: []string{"a"}}, Waiting{Reason: CodeLimit, Since: noon}),
		object(Backup{UID: "2", Include: []string{"a"}, Created: noon.Add(time.Second)}, Waiting{}))
	require.Len(t, list, 2)
	assert.Equal(t, kindStart, list[0].kind)
	assert.JSONEq(t, `{"metadata":{"resourceVersion":"7","annotations":{"plimsoll.dev/waiting":"{\"reason\":\"velero\",\"since\":\"`+noon.Format(time.RFC3339)+`\"}"}},
		"status":{"phase":"ReadyToStart","queuePosition":0}}`, body(t, list[0]))
	assert.Equal(t, kindQueue, list[1].kind)
	var queued struct {
		Metadata struct{ Annotations map[string]string }
		Status   struct {
			Phase         string
			QueuePosition int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body(t, list[1])), &queued))
	assert.Equal(t, "Queued", queued.Status.Phase)
	assert.Equal(t, 1, queued.Status.QueuePosition)
	assert.JSONEq(t, `{"reason":"ahead","since":"`+noon.Format(time.RFC3339)+`","blockedBy":"name-1","namespaces":["a"],"sharedNamespaces":1,"turn":{"version":7}}`, queued.Metadata.Annotations[AnnotationWaiting])
}

func TestBackupPatchUnchangedNotWritten(t *testing.T) {
	waits := Waiting{Reason: CodeRunning, Since: noon, BlockedBy: "name-1"}
	objects := []*Object{
		object(Backup{UID: "1", Phase: InProgress}, Waiting{}),
		object(Backup{UID: "2", Phase: Queued, Position: 1}, waits),
		object(Backup{UID: "9", Phase: "Completed"}, Waiting{}),
	}
	assert.Empty(t, planned(Config{Limit: 2}, noon.Add(time.Hour), false, objects...))
	assert.Empty(t, planned(Config{Limit: 2}, noon.Add(time.Hour), true, objects...))
}

func TestBackupMarkRemovedWhenNotWaiting(t *testing.T) {
	for _, phase := range []Phase{InProgress, "Completed", "FailedValidation"} {
		list := planned(Config{}, noon, false, object(Backup{UID: "1", Phase: phase}, Waiting{Reason: CodeVelero, Since: noon}))
		require.Len(t, list, 1, phase)
		assert.Equal(t, kindClean, list[0].kind)
		assert.JSONEq(t, `{"metadata":{"resourceVersion":"7","annotations":{"plimsoll.dev/waiting":null}}}`, body(t, list[0]))
	}
}

func TestBackupTouchBackoff(t *testing.T) {
	o := object(Backup{UID: "1", Phase: Ready}, Waiting{Reason: CodeVelero, Since: noon})
	var after []string
	for now := noon; now.Before(noon.Add(time.Hour)); now = now.Add(time.Second) {
		for _, w := range planned(DefaultConfig(), now, false, o) {
			require.Equal(t, kindTouch, w.kind)
			assert.Equal(t, noon, w.patch.waiting.Since)
			after = append(after, now.Sub(noon).String())
			o.Waiting = *w.patch.waiting
		}
	}
	assert.Equal(t, []string{"30s", "1m0s", "2m0s", "4m0s", "8m0s", "16m0s", "26m0s", "36m0s", "46m0s", "56m0s"}, after)
	assert.Len(t, planned(Config{}, noon, false, object(Backup{UID: "1", Phase: Ready}, Waiting{})), 1, "one that somebody else let start is touched at once, and its time counts from then on")
}

// Rounds come when time alone lets a Backup start, reminds Velero of one or makes it stuck,
// however long the resync is.
func TestPauseUntilTimeChangesSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 1)
		s.r.Settings = func() Settings {
			return Settings{Enabled: true, Resync: time.Hour, Config: DefaultConfig(), Deadlines: DeadlineSettings{Enabled: true}}
		}
		began := time.Now() // midnight in UTC
		rounds := func(n int) (at []string) {
			for range n {
				s.settle()
				time.Sleep(s.pause)
				at = append(at, time.Since(began).String())
			}
			s.settle()
			return at
		}
		s.backup("first", 0, "a")
		s.now["first"].SetAnnotations(map[string]string{names.Window: "00:40-06:00 UTC"})
		s.put(s.now["first"])
		assert.Equal(t, []string{"40m0s"}, rounds(1))
		assert.Equal(t, Ready, s.phase("first"))
		s.backup("second", 0, "b")
		s.now["second"].SetAnnotations(map[string]string{names.Window: "00:40-00:45 UTC"})
		s.put(s.now["second"])
		assert.Equal(t, []string{"40m30s", "41m0s", "42m0s", "44m0s", "45m0s", "48m0s", "50m0s"}, rounds(7))
		assert.Equal(t, Ready, s.phase("second"), "the first is stuck and has lost its slot")
	})
}

// A Backup that was let start in its window and not taken up in it waits for the next one, where it
// is postponed.
func TestReadyIsPostponed(t *testing.T) {
	for name, tt := range map[string]struct {
		deadlines DeadlineSettings
		taken     bool // up by Velero
		want      Phase
	}{
		"postponed":                  {DeadlineSettings{Window: "22:00-06:00 UTC", OnMiss: OnMissPostpone}, false, Queued},
		"it runs":                    {DeadlineSettings{Window: "22:00-06:00 UTC", OnMiss: OnMissPostpone}, true, InProgress},
		"it starts after its window": {DeadlineSettings{Window: "22:00-06:00 UTC", OnMiss: OnMissRun}, false, Ready},
		"without a window":           {DeadlineSettings{RPO: 30 * time.Hour, OnMiss: OnMissPostpone}, false, Ready},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // from midnight on
				s := newScene(t, 1)
				s.r.Settings = func() Settings {
					settings := leading(1, Config{})
					settings.Deadlines = tt.deadlines
					settings.Deadlines.Enabled = true
					return settings
				}
				time.Sleep(23 * time.Hour)
				s.backup("db", 0, "a")
				s.backup("other", 0, "a")
				s.settle()
				require.Equal(t, Ready, s.phase("db"))
				time.Sleep(7*time.Hour - time.Minute)
				s.settle()
				require.Equal(t, Ready, s.phase("db"), "its window is open")
				if tt.taken {
					require.True(t, s.become(Ready, InProgress))
				}
				time.Sleep(2 * time.Minute)
				s.settle()
				require.Equal(t, tt.want, s.phase("db"))
				assert.Equal(t, Queued, s.phase("other"))
				if tt.want != Queued {
					return
				}
				db := s.read["db"]
				assert.Equal(t, CodeWindow, db.Waiting.Reason)
				assert.Positive(t, db.Backup.Position)
				assert.NotZero(t, db.Backup.Turn)
				time.Sleep(16 * time.Hour)
				s.settle()
				assert.Equal(t, 1, s.most)
				assert.Contains(t, []Phase{s.phase("db"), s.phase("other")}, Ready, "the next window is open")
			})
		})
	}
}

func TestBackupReasonOfFarBehindNotWritten(t *testing.T) {
	now := noon.Add(time.Hour)
	objects := []*Object{object(Backup{UID: "0", Phase: InProgress, Include: []string{"a"}}, Waiting{})}
	for i := range 6 {
		objects = append(objects, object(Backup{UID: fmt.Sprint(i + 1), Phase: Queued, Position: i + 1, Include: []string{"b"}, Created: noon.Add(time.Duration(i))},
			Waiting{Reason: CodeRunning, Since: noon}))
	}
	var who []string
	for _, w := range planned(Config{Limit: 1}, now, false, objects...) {
		assert.Equal(t, kindWaiting, w.kind)
		who = append(who, w.object.Backup.UID)
	}
	assert.Equal(t, []string{"1", "2", "3"}, who)
	assert.Len(t, planned(Config{Limit: 1}, now, true, objects...), 6, "all of them once it is quiet")
	assert.Empty(t, planned(Config{Limit: 1}, noon.Add(reasonDebounce-time.Second), false, objects...), "a reason that is new stands for a while")
}

// apply a write as the API server and Read do.
func apply(w write) {
	b := &w.object.Backup
	if w.patch.phase != "" {
		b.Phase = w.patch.phase
	}
	if w.patch.position != nil {
		b.Position = *w.patch.position
	}
	if w.patch.waiting != nil {
		w.object.Waiting, w.object.Annotated = *w.patch.waiting, w.patch.waiting.Reason != ""
		b.Turn = w.object.Waiting.Turn
	}
	b.Version += 1000
}

// cutOff is some Backups in an order that a controller works on.
type cutOff struct {
	objects  []*Object
	handBack bool
}

// newCutOff is a queue with the positions of Velero's own, some of them the
// same, or with turns.
func newCutOff(r *rand.Rand, veleros bool) *cutOff {
	c := &cutOff{}
	for i := range 2 + r.IntN(12) {
		b := Backup{
			UID: fmt.Sprintf("%02d", i), Phase: Queued, Position: r.IntN(20), Version: uint64(100 + r.IntN(100)),
			Created: noon.Add(time.Duration(r.IntN(3)) * time.Second), Include: []string{"a"},
		}
		waiting := Waiting{}
		switch {
		case r.IntN(4) == 0:
			b.Phase, b.Position = New, 0
		case !veleros:
			b.Turn, b.Position = Turn{Version: uint64(i + 1)}, 2*i+1+r.IntN(2)
			waiting = Waiting{Reason: CodeLimit, Since: noon, Turn: b.Turn}
		}
		c.objects = append(c.objects, object(b, waiting))
	}
	c.objects = append(c.objects, object(Backup{UID: "runs", Phase: InProgress}, Waiting{}))
	return c
}

func (c *cutOff) decide() Decision {
	return Decide(Input{Time: noon, Backups: Backups(c.objects), Namespaces: NewNamespaces([]string{"a"}), HandBack: c.handBack})
}

// order that the next controller finds.
func (c *cutOff) order() (uids []string) {
	for _, e := range c.decide().Queue {
		uids = append(uids, e.UID)
	}
	return uids
}

// veleros is the order by the positions, which Velero's own queue reads; of
// Backups that have none, or the same, it is that of before.
func (c *cutOff) veleros(before []string) []string {
	objects := byUID(c.objects)
	return slices.SortedStableFunc(slices.Values(before), func(a, b string) int {
		return cmp.Compare(place(objects[a].Backup), place(objects[b].Backup))
	})
}

func (c *cutOff) writes(quiet bool) []write {
	if !c.handBack {
		return planned(Config{Limit: 1}, noon, quiet, c.objects...)
	}
	d := c.decide()
	list, _ := (&planner{now: noon, objects: byUID(c.objects), refused: &Refusals{}}).handBack(&d)
	return list
}

// Wherever a controller is killed among its writes, the next one finds the
// order that the queue had, and so does Velero's own queue, by the positions.
func TestOrderSurvivesCutOffWrites(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 9))
		veleros := seed%2 == 0
		c := newCutOff(r, veleros)
		before := c.order()
		for _, c.handBack = range []bool{false, true, true}[r.IntN(2):] {
			for _, w := range c.writes(r.IntN(2) == 0) {
				apply(w)
				require.Equal(t, before, c.order(), "seed %d after %s of %s", seed, w.kind, w.object.Name)
				require.Equal(t, before, c.veleros(before), "seed %d after %s of %s", seed, w.kind, w.object.Name)
				if !veleros { // the queue is ours again
					again := cutOff{objects: c.objects}
					require.Equal(t, before, again.order(), "seed %d after %s of %s", seed, w.kind, w.object.Name)
				}
			}
		}
		require.False(t, slices.ContainsFunc(c.objects, func(o *Object) bool { return o.Annotated }))
	}
}

func TestHandBackWritesPositions(t *testing.T) {
	objects := []*Object{
		object(Backup{UID: "runs", Phase: InProgress}, Waiting{}),
		object(Backup{UID: "left", Phase: Ready}, Waiting{Reason: CodeVelero, Since: noon.Add(-requeueAfter)}),
		object(Backup{UID: "now", Phase: Ready}, Waiting{Reason: CodeVelero, Since: noon.Add(-time.Second)}),
		object(Backup{UID: "a", Phase: Queued, Position: 2}, Waiting{Reason: CodeRunning, Since: noon}),
		object(Backup{UID: "b", Phase: Queued, Position: 40}, Waiting{}),
		object(Backup{UID: "c"}, Waiting{}),
	}
	for step, want := range []map[string]int{{"b": 3, "c": 4}, {"a": 2, "b": 3, "c": 4, "left": 1}, {"a": 2, "b": 3, "c": 4, "left": 1}} {
		d := Decide(Input{Time: noon, Backups: Backups(objects), Namespaces: NewNamespaces(nil), HandBack: true})
		list, last := (&planner{now: noon, objects: byUID(objects), refused: &Refusals{}}).handBack(&d)
		assert.Equal(t, step > 0, last)
		written := map[string]int{}
		for _, w := range list {
			apply(w)
			assert.Equal(t, Queued, w.object.Backup.Phase)
			assert.Equal(t, step == 0, w.object.Annotated)
			written[w.object.Backup.UID] = w.object.Backup.Position
		}
		if step == 2 {
			want = map[string]int{}
		}
		assert.Equal(t, want, written)
	}
}

func TestBackupRead(t *testing.T) {
	u := &unstructured.Unstructured{}
	require.NoError(t, u.UnmarshalJSON([]byte(`{"apiVersion":"velero.io/v1","kind":"Backup","metadata":{"name":"n","namespace":"velero","uid":"u","resourceVersion":"5",
		"creationTimestamp":"2026-03-01T02:00:00Z","labels":{"velero.io/schedule-name":"nightly"},
		"annotations":{"plimsoll.dev/priority":"-3","plimsoll.dev/waiting":"{\"reason\":\"velero\",\"since\":\"2026-03-01T02:01:00Z\"}"}},
		"spec":{"includedNamespaces":["a","b*"],"excludedNamespaces":["bc"]},"status":{"phase":"ReadyToStart","queuePosition":4}}`)))
	o := Read(u)
	assert.Equal(t, Backup{
		UID: "u", Namespace: "velero", Name: "n", Phase: Ready, Version: 5, Position: 4, Created: o.CreationTimestamp.Time,
		Include: []string{"a", "b*"}, Exclude: []string{"bc"}, Priority: -3, Schedule: "nightly", ReadySince: time.Date(2026, 3, 1, 2, 1, 0, 0, time.UTC),
	}, o.Backup)
	require.NoError(t, o.AnnotationErr)
	assert.True(t, o.Annotated)
	another := u.DeepCopy()
	another.SetAnnotations(map[string]string{AnnotationWaiting: `{"reason":"limit","since":"2026-03-01T02:01:00Z"}`})
	assert.Zero(t, Read(another).Backup.ReadySince, "another let it start: what it waited for before says nothing")
	for _, bad := range []string{"high", "", "1.5", "2147483648", " 1"} {
		u.SetAnnotations(map[string]string{AnnotationPriority: bad, AnnotationWaiting: "{"})
		o = Read(u)
		require.ErrorContains(t, o.AnnotationErr, fmt.Sprintf("%q; using 0", bad))
		assert.Zero(t, o.Backup.Priority)
		assert.Zero(t, o.Waiting)
		assert.True(t, o.Annotated, "what cannot be read is still taken away")
	}
}

func TestBackupBeingDeletedNeverStarts(t *testing.T) {
	waits, runs := object(Backup{UID: "1", Phase: Queued}, Waiting{}), object(Backup{UID: "2", Phase: InProgress}, Waiting{})
	for _, o := range []*Object{waits, runs} {
		o.DeletionTimestamp = &metav1.Time{Time: noon}
	}
	assert.Equal(t, []string{"2"}, slices.Collect(func(yield func(string) bool) {
		for _, b := range Backups([]*Object{waits, runs}) {
			yield(b.UID)
		}
	}))
}

// The next round comes when something may be written again.
func TestPauseUntilRefusalEnds(t *testing.T) {
	var refused Refusals
	refused.Add("u", "5", noon.Add(40*time.Second))
	in := Input{Time: noon, Backups: []Backup{{UID: "u", Version: 5}, {UID: "v", Version: 5}}}
	assert.Equal(t, 40*time.Second, (&planner{now: noon, refused: &refused}).pause(&in))
}
