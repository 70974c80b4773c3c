package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/abilities"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/store"
)

// server is an API server's Backups, and all that became of them: a leader's
// view is a prefix of that.
type server struct {
	random  *rand.Rand
	now     map[string]*unstructured.Unstructured
	read    map[string]*Object // the same, as it is read
	history []change
	// rank of each Backup in the order in which they must start where they
	// overlap; none: something changed it while no leader knew it.
	rank map[string]int
	// ordered: Backups that overlap start by rank.
	ordered bool
	// dated: Backups have objectives.
	dated bool
	wrong error
	// most that ran at once.
	most int
}

// change is a version of a Backup, or its end.
type change struct {
	object  *unstructured.Unstructured
	deleted bool
}

// version that is the latest.
func (s *server) version() int { return 1000 + len(s.history) }

// put a Backup as a new version.
func (s *server) put(u *unstructured.Unstructured) {
	u.SetResourceVersion(strconv.Itoa(s.version() + 1))
	name, before := u.GetName(), s.phase(u.GetName())
	s.now[name], s.read[name] = u, Read(u)
	s.history = append(s.history, change{object: u})
	if s.phase(name) == Ready && before != Ready {
		s.starts(name)
	}
}

func (s *server) phase(name string) Phase {
	if o := s.read[name]; o != nil {
		return o.Backup.Phase
	}
	return ""
}

// starts checks one that is let start against all others.
func (s *server) starts(name string) {
	self, running := s.read[name].Backup, 0
	for other, object := range s.read {
		o := object.Backup
		if o.running() {
			running++
		}
		switch {
		case other == name || !overlapInModel(self, o):
		case o.running():
			s.fail("%s is let start beside %s, which is %s", name, other, o.Phase)
		case s.ordered && o.waits() && s.rank[name] != 0 && s.rank[other] != 0 && s.rank[other] < s.rank[name]:
			s.fail("%s is let start before %s", name, other)
		}
	}
	s.most = max(s.most, running)
}

func (s *server) fail(format string, args ...any) {
	if s.wrong == nil {
		s.wrong = fmt.Errorf(format, args...)
	}
}

var modelNamespaces = []string{"a", "b", "c", "d"}

func overlapInModel(a, b Backup) bool { return model{active: modelNamespaces}.overlap(a, b) }

// create a Backup; one with a position was Queued by Velero's own queue.
func (s *server) create(position int) {
	name := fmt.Sprintf("b%03d", len(s.rank))
	includes := [][]any{{"a"}, {"b"}, {"c"}, {"a", "b"}, {"c", "d"}, {"[a-b]"}, {"*"}, {"d"}, {"b*"}}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "velero.io/v1", "kind": "Backup",
		"metadata": map[string]any{
			"name": name, "namespace": "velero", "uid": fmt.Sprintf("%04d", s.random.IntN(10000)) + name,
			"annotations": map[string]any{AnnotationPriority: strconv.Itoa(s.random.IntN(3))},
		},
		"spec": map[string]any{"includedNamespaces": includes[s.random.IntN(len(includes))]},
	}}
	if s.dated {
		s.date(u)
	}
	u.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second).UTC()))
	s.rank[name] = len(s.rank) + 1
	if position > 0 {
		u.Object["status"] = map[string]any{"phase": string(Queued), "queuePosition": int64(position)}
	}
	s.put(u)
}

// date a Backup: it has an objective of its own, or of its Schedule.
func (s *server) date(u *unstructured.Unstructured) {
	annotations := u.GetAnnotations()
	annotations[names.Window] = []string{"none", "00:02-23:00 UTC", "00:04-00:10 UTC", "00:09-23:00 UTC"}[s.random.IntN(4)]
	annotations[names.RPO] = []string{"none", "1m", "5m", "1h"}[s.random.IntN(4)]
	u.SetAnnotations(annotations)
	if s.random.IntN(2) == 0 {
		u.SetLabels(map[string]string{labelSchedule: "nightly"})
	}
}

// pick a Backup of some phases.
func (s *server) pick(phases ...Phase) *unstructured.Unstructured {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.now)) {
		if slices.Contains(phases, s.phase(name)) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return s.now[names[s.random.IntN(len(names))]].DeepCopy()
}

// become: Velero writes without regard to the version.
func (s *server) become(from, to Phase) bool {
	u := s.pick(from)
	if u == nil {
		return false
	}
	_ = unstructured.SetNestedField(u.Object, string(to), "status", "phase")
	s.put(u)
	return true
}

// edit one that waits, as its owner may.
func (s *server) edit() {
	if u := s.pick("", New, Queued); u != nil {
		if s.phase(u.GetName()) != Queued {
			s.rank[u.GetName()] = 0
		}
		annotations := u.GetAnnotations()
		annotations[AnnotationPriority] = strconv.Itoa(s.random.IntN(3))
		u.SetAnnotations(annotations)
		u.SetLabels(map[string]string{"edited": strconv.Itoa(s.version())})
		s.put(u)
	}
}

func (s *server) remove() {
	if u := s.pick("", New, Queued, "Completed"); u != nil {
		delete(s.now, u.GetName())
		delete(s.read, u.GetName())
		s.history = append(s.history, change{object: u, deleted: true})
	}
}

// ask is a patch that a leader has sent.
type ask struct {
	name string
	body []byte
}

var groupResource = Resource().GroupResource()

// patch as the API server does: only the version that the body names.
func (s *server) patch(a ask) (*unstructured.Unstructured, error) {
	old := s.now[a.name]
	if old == nil {
		return nil, apierrors.NewNotFound(groupResource, a.name)
	}
	var body map[string]any
	if err := json.Unmarshal(a.body, &body); err != nil {
		return nil, err
	}
	meta, _ := body["metadata"].(map[string]any)
	if meta["resourceVersion"] != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(groupResource, a.name, errors.New("another version"))
	}
	delete(meta, "resourceVersion")
	u := old.DeepCopy()
	merge(u.Object, body)
	s.put(u)
	return u, nil
}

// merge as RFC 7396 says.
func merge(into, patch map[string]any) {
	for key, value := range patch {
		switch v := value.(type) {
		case nil:
			delete(into, key)
		case map[string]any:
			child, is := into[key].(map[string]any)
			if !is {
				child = map[string]any{}
				into[key] = child
			}
			merge(child, v)
		case float64:
			into[key] = int64(v)
		default:
			into[key] = v
		}
	}
}

// leader is a controller that leads or thinks so: the real Reconciler over a
// view that lags behind. It stands still before each write, so that anything may
// come between what it has seen and what it writes.
type leader struct {
	dynamic.NamespaceableResourceInterface

	server *server
	r      *Reconciler
	seen   int           // changes that it knows
	pause  time.Duration // until the next round
	resume func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	sent   *ask
	answer error // what comes back in place of the API server's answer
}

func newest(context.Context) abilities.Velero { return abilities.Velero{} }

func newLeader(s *server, settings func() Settings) *leader {
	l := &leader{server: s}
	l.r = &Reconciler{Backups: l, Of: []string{"velero"}, Abilities: newest, Settings: settings, Events: quietEvents{}, Log: slog.New(slog.DiscardHandler)}
	l.r.reset()
	var all, namespaces []any
	for _, u := range s.now {
		all = append(all, u.DeepCopy())
	}
	for _, name := range modelNamespaces {
		namespaces = append(namespaces, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	l.seen = len(s.history)
	_ = l.r.cache.backups["velero"].Replace(all, "")
	_ = l.r.cache.namespaces.Replace(namespaces, "")
	l.r.watching = time.Now().Add(-listing)    // it waits no longer for Schedules
	l.r.veleroOf("velero").playing.Store(true) // nor plays nights
	if s.dated && s.random.IntN(2) == 0 {
		_ = l.r.cache.schedules["velero"].Replace([]any{schedule("nightly", "0 22 * * *", names.Window, "00:06-23:00 UTC", names.RPO, "30h")}, "")
	}
	l.resume, l.stop = iter.Pull(func(yield func(struct{}) bool) {
		l.yield = yield
		for yield(struct{}{}) {
			l.pause = l.r.reconcile(context.Background())
		}
	})
	l.resume()
	return l
}

type quietEvents struct{}

func (quietEvents) Event(runtime.Object, string, string, string) {}

func (l *leader) Namespace(string) dynamic.ResourceInterface { return patcher{leader: l} }

// patcher is a leader's client.
type patcher struct {
	dynamic.ResourceInterface

	leader *leader
}

func (p patcher) Patch(_ context.Context, name string, _ types.PatchType, body []byte, _ metav1.PatchOptions, _ ...string) (*unstructured.Unstructured, error) {
	l := p.leader
	l.sent, l.answer = &ask{name, body}, nil
	if !l.yield(struct{}{}) {
		return nil, context.Canceled
	}
	a := *l.sent
	l.sent = nil
	if l.answer != nil {
		return nil, l.answer
	}
	return l.server.patch(a)
}

// List one Backup by its name.
func (p patcher) List(_ context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	if u := p.leader.server.now[strings.TrimPrefix(o.FieldSelector, "metadata.name=")]; u != nil {
		list.Items = append(list.Items, *u.DeepCopy())
	}
	return list, nil
}

// learn the next changes.
func (l *leader) learn(n int) {
	for ; n > 0 && l.seen < len(l.server.history); n-- {
		c := l.server.history[l.seen]
		l.seen++
		if c.deleted {
			_ = l.r.cache.backups["velero"].Delete(c.object.DeepCopy())
		} else {
			_ = l.r.cache.backups["velero"].Add(c.object.DeepCopy())
		}
	}
}

// A round that began before its cache has what the last one wrote would write it again.
func TestRoundAfterOwnWrites(t *testing.T) {
	for _, of := range [][]string{{"velero"}, nil} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{random: rand.New(rand.NewPCG(1, 1)), now: map[string]*unstructured.Unstructured{}, read: map[string]*Object{}, rank: map[string]int{}}
			s.create(0)
			l := newLeader(s, func() Settings { return leading(1, Config{}) })
			defer l.stop()
			if of == nil { // the cache of all namespaces
				l.r.cache.backups = map[string]*store.Store[*Object]{"": l.r.cache.backups["velero"]}
			}
			require.True(t, l.r.cache.caughtUp())
			l.resume()
			require.NotNil(t, l.sent)
			for l.sent != nil {
				l.resume()
			}
			require.False(t, l.r.cache.caughtUp())
			l.resume()
			require.Nil(t, l.sent, "nothing is written again")
			if of == nil {
				l.r.cache.backups["velero"] = l.r.cache.backups[""]
			}
			l.learn(len(s.history))
			require.True(t, l.r.cache.caughtUp())
		})
	}
}

// contest is some leaders at once over one API server.
type contest struct {
	*server
	settings []func() Settings
	leaders  []*leader
	late     []ask // writes whose answer was lost, on their way still
}

func (c *contest) step() {
	l := c.leaders[c.random.IntN(len(c.leaders))]
	switch n := c.random.IntN(100); {
	case n < 45:
		l.resume()
	case n < 70:
		l.learn(1 + c.random.IntN(1+c.random.IntN(30)))
	case n < 78:
		c.become(Ready, InProgress)
	case n < 86:
		c.become(InProgress, "Completed")
	case n < 92:
		if len(c.rank) < 40 {
			c.create(0)
		}
	case n < 93:
		c.edit()
	case n < 94:
		c.remove()
	case n < 95:
		c.replace(l)
	case n < 96 && l.sent != nil: // its answer comes too late, or the write does
		c.late = append(c.late, *l.sent)
		l.answer = context.DeadlineExceeded
		l.resume()
	case n < 98 && len(c.late) > 0:
		i := c.random.IntN(len(c.late))
		_, _ = c.patch(c.late[i])
		c.late = slices.Delete(c.late, i, i+1)
	default:
		most := 3000
		if c.dated { // so that windows open and close
			most *= 20
		}
		time.Sleep(time.Duration(c.random.IntN(most)) * time.Millisecond)
	}
}

// replace a leader by one that has just been elected; what it had sent may
// still arrive.
func (c *contest) replace(l *leader) {
	if l.sent != nil {
		c.late = append(c.late, *l.sent)
	}
	l.stop()
	i := slices.Index(c.leaders, l)
	c.leaders[i] = newLeader(c.server, c.settings[i])
}

// drain: one leader is left, and all that waits must have its turn.
func (c *contest) drain() error {
	for _, a := range c.late {
		_, _ = c.patch(a)
	}
	for _, l := range c.leaders[1:] {
		l.stop()
	}
	l := c.leaders[0]
	for range 20_000 {
		l.learn(len(c.history))
		l.resume()
		if c.random.IntN(4) == 0 {
			c.become(Ready, InProgress)
			c.become(InProgress, "Completed")
		}
		if l.sent == nil && c.pick("", New, Queued, Ready, InProgress) == nil {
			return nil
		}
		if c.dated && l.sent == nil {
			time.Sleep(10 * time.Minute)
		}
	}
	return fmt.Errorf("%s never starts", c.pick("", New, Queued, Ready, InProgress).GetName())
}

// compete plays some leaders at once, by one seed.
func compete(seed uint64, ordered bool, settings ...func() Settings) (c *contest, err error) {
	s := &server{random: rand.New(rand.NewPCG(seed, 19)), now: map[string]*unstructured.Unstructured{}, read: map[string]*Object{}, rank: map[string]int{}, ordered: ordered, dated: settings[0]().Deadlines.Enabled}
	c = &contest{server: s, settings: settings}
	for i := range s.random.IntN(6) {
		s.create(1 + i)
	}
	for _, of := range settings {
		c.leaders = append(c.leaders, newLeader(s, of))
	}
	defer func() {
		for _, l := range c.leaders {
			l.stop()
		}
	}()
	for range 600 {
		if c.step(); s.wrong != nil {
			return c, s.wrong
		}
	}
	if err := c.drain(); err != nil {
		return c, err
	}
	return c, s.wrong
}

func TestLeadersStaleViewsStartInOrder(t *testing.T) {
	for seed := range uint64(live.Times(10, 30)) {
		synctest.Test(t, func(t *testing.T) {
			of := func() Settings { return leading(1+int(seed%3), Config{}) }
			leaders := slices.Repeat([]func() Settings{of}, 1+int(seed%3))
			c, err := compete(seed, true, leaders...)
			require.NoError(t, err, "seed %d", seed)
			require.LessOrEqual(t, c.most, len(leaders)*(1+int(seed%3)))
		})
	}
}

// Leaders whose clocks differ, that read the file of another minute, or of which one lists no
// Schedules, do not agree on who goes first. What overlaps does not run together all the same.
func TestLeadersDisagreeNoOverlapRuns(t *testing.T) {
	for seed := range uint64(live.Times(10, 30)) {
		for _, deadlines := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var leaders []func() Settings
				for i := range 2 + int(seed%2) {
					aging := 3 * time.Second << (2 * (i + int(seed%3)))
					leaders = append(leaders, func() Settings {
						settings := leading(1+int(seed%3), Config{Priorities: i == 0 || seed%4 > 0, Aging: aging})
						settings.Deadlines = DeadlineSettings{Enabled: deadlines, RPO: time.Minute << i, OnMiss: []OnMiss{OnMissRun, OnMissPostpone}[i%2]}
						return settings
					})
				}
				_, err := compete(seed, false, leaders...)
				require.NoError(t, err, "seed %d, deadlines %t", seed, deadlines)
			})
		}
	}
}

func leading(limit int, c Config) Settings {
	c.Limit = limit
	return Settings{Enabled: true, Resync: time.Minute, Config: c}
}
