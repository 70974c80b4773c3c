package agents

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// fixture is an API server that answers at once, and agents that beat: what a
// Reconciler is told of Leases and Nodes, it is told by beat.
type fixture struct {
	corev1client.PodInterface
	corev1client.NodeInterface
	coordinationv1client.LeaseInterface

	t       *testing.T
	r       *Reconciler
	log     bytes.Buffer
	leases  map[string]*coordinationv1.Lease
	pods    map[string]*corev1.Pod // by name
	nodes   map[string]*corev1.Node
	marked  []string       // nodes whose taints or conditions were written
	calls   map[string]int // of the controller, by the node's name
	tick    time.Duration  // of the agents' clocks
	written []string       // answers
	posted  []evict.Victim
	// answer to evictions; nil: they are accepted.
	answer func() evict.Answer
	told   []string // reasons of Events
	// list of the pods.
	list func(context.Context) (*corev1.PodList, error)
	// fails is of each write to a Lease, which takes this long.
	fails error
	takes time.Duration
	// nodeFails is of each write to a Node.
	nodeFails error
}

// annotationsLimit of all of an object's, in bytes (apimachinery,
// TotalAnnotationSizeLimitB).
const annotationsLimit = 256 << 10

func newFixture(t *testing.T) *fixture {
	s := &fixture{t: t, leases: map[string]*coordinationv1.Lease{}, pods: map[string]*corev1.Pod{}, nodes: map[string]*corev1.Node{}, calls: map[string]int{}}
	s.list = func(context.Context) (*corev1.PodList, error) {
		return &corev1.PodList{ListMeta: metav1.ListMeta{RemainingItemCount: new(int64(999))}, Items: []corev1.Pod{{}}}, nil
	}
	s.r = &Reconciler{
		Nodes: fixtureNodes{s}, Leases: fixtureLeases{s}, Pods: fixturePods{s}, Evictor: s, Settings: DefaultSettings, Events: s,
		About: &corev1.ObjectReference{}, Log: slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	s.r.reset()
	require.NoError(t, s.r.cache.nodes.Replace(nil, ""))
	require.NoError(t, s.r.cache.leases.Replace(nil, ""))
	return s
}

type fixtureLeases struct{ s *fixture }

func (l fixtureLeases) Leases(string) coordinationv1client.LeaseInterface {
	return fixtureLease{l.s, l.s.LeaseInterface}
}

type fixturePods struct{ s *fixture }

func (p fixturePods) Pods(string) corev1client.PodInterface { return fixturePod{p.s, p.s.PodInterface} }

type fixtureNodes struct{ s *fixture }

func (n fixtureNodes) Nodes() corev1client.NodeInterface { return fixtureNode{n.s, n.s.NodeInterface} }

type fixtureNode struct {
	s *fixture
	corev1client.NodeInterface
}

func (n fixtureNode) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Node, error) {
	return n.s.nodes[name].DeepCopy(), nil
}

func (n fixtureNode) Patch(_ context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Node, error) {
	if n.s.nodeFails != nil {
		return nil, n.s.nodeFails
	}
	n.s.marked = append(n.s.marked, name)
	return nil, nil
}

type fixtureLease struct {
	s *fixture
	coordinationv1client.LeaseInterface
}

func (l fixtureLease) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.s.calls[name]++
	return l.s.leases[name].DeepCopy(), nil
}

func (l fixtureLease) Patch(_ context.Context, name string, _ types.PatchType, body []byte, _ metav1.PatchOptions, _ ...string) (*coordinationv1.Lease, error) {
	l.s.calls[name]++
	time.Sleep(l.s.takes)
	if l.s.fails != nil {
		return nil, l.s.fails
	}
	var patch struct {
		Metadata struct{ Annotations map[string]string }
	}
	require.NoError(l.s.t, json.Unmarshal(body, &patch))
	is := l.s.leases[name]
	size := 0
	for key, value := range is.Annotations {
		if _, anew := patch.Metadata.Annotations[key]; !anew {
			size += len(key) + len(value)
		}
	}
	for key, value := range patch.Metadata.Annotations {
		size += len(key) + len(value)
	}
	if size > annotationsLimit {
		return nil, apierrors.NewBadRequest("metadata.annotations: Too long")
	}
	l.s.written = append(l.s.written, patch.Metadata.Annotations[lease.AnswersAnnotation])
	for key, value := range patch.Metadata.Annotations {
		metav1.SetMetaDataAnnotation(&is.ObjectMeta, key, value)
	}
	require.NoError(l.s.t, l.s.r.cache.leases.Update(is.DeepCopy()))
	return is.DeepCopy(), nil
}

type fixturePod struct {
	s *fixture
	corev1client.PodInterface
}

func (p fixturePod) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	is, there := p.s.pods[name]
	if !there {
		p.s.calls["no such pod"]++
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	p.s.calls[is.Spec.NodeName]++
	return is, nil
}

func (p fixturePod) List(ctx context.Context, _ metav1.ListOptions) (*corev1.PodList, error) {
	return p.s.list(ctx)
}

func (s *fixture) Evict(_ context.Context, v evict.Victim, _ bool) evict.Answer {
	s.posted = append(s.posted, v)
	if s.answer != nil {
		return s.answer()
	}
	return evict.Answer{Outcome: evict.Evicted, Text: strings.Repeat("a webhook's ", 100)}
}

func (s *fixture) Event(_ runtime.Object, _, reason, text string) {
	s.told = append(s.told, reason)
	if reason == ReasonSilent {
		assert.Contains(s.t, text, "see the log of the agent's pod or unit", "what to do")
	}
}

// node with an agent, and with one pod of an owner of its own for each app.
func (s *fixture) node(name string, apps ...string) {
	s.t.Helper()
	require.NoError(s.t, s.r.cache.nodes.Update(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}))
	s.leases[name] = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, app := range apps {
		s.pods[app] = pod(func(p *corev1.Pod) {
			p.Name, p.UID, p.Spec.NodeName, p.OwnerReferences[0].Name = app, types.UID(app), name, app+"-1"
		})
	}
	s.beat(name, nil)
}

// beat once, with these annotations beside those that are there.
func (s *fixture) beat(name string, annotations map[string]string) {
	s.t.Helper()
	s.tick += time.Second
	is := s.leases[name]
	is.Spec.RenewTime = new(lease.Micro(noon.Add(s.tick)))
	for key, value := range annotations {
		metav1.SetMetaDataAnnotation(&is.ObjectMeta, key, value)
	}
	require.NoError(s.t, s.r.cache.leases.Update(is.DeepCopy()))
}

// asks for pods, as an agent does.
func (s *fixture) asks(name string, list ...lease.Request) []lease.Request {
	s.t.Helper()
	text, err := json.Marshal(list)
	require.NoError(s.t, err)
	s.beat(name, map[string]string{lease.EvictionsAnnotation: string(text)})
	return list
}

func (s *fixture) answers(name string) []lease.Answer {
	s.t.Helper()
	carried, err := lease.ReadContent(map[string]string{lease.AnswersAnnotation: cmp.Or(s.leases[name].Annotations[lease.AnswersAnnotation], "[]")})
	require.NoError(s.t, err)
	return carried.Answers
}

// many requests for pods that there are not, of this moment.
func many(n int, at time.Time) []lease.Request {
	var list []lease.Request
	for i := range n {
		list = append(list, lease.Request{UID: fmt.Sprint("u", i), Namespace: "s", Name: fmt.Sprint("p", i), Since: lease.Micro(at)})
	}
	return list
}

// The flood of one token costs its own node, and nobody waits for it: 2,000
// requests beside a report that cannot be read, at another moment with each beat.
func TestFloodOfRequestsCostsOwnNode(t *testing.T) {
	const looks = 16
	s := newFixture(t)
	s.node("flood")
	s.node("honest", "web")
	var longest time.Duration
	answered := 0
	for i := range looks {
		flood := many(2000, noon.Add(time.Duration(i)*time.Second))
		s.asks("flood", flood...)
		s.beat("flood", map[string]string{lease.NodeAnnotation: `{"pressure":7}`})
		if i == looks/2 {
			s.asks("honest", lease.Request{UID: "web", Namespace: "shop", Name: "web", Since: lease.Micro(noon)})
		}
		s.beat("honest", nil)
		start := time.Now()
		s.r.round(t.Context())
		longest = max(longest, time.Since(start))
		if i >= looks/2 && answered == 0 && len(s.answers("honest")) > 0 {
			answered = i - looks/2 + 1
		}
	}
	kept := 0
	for _, list := range s.r.journal.answers {
		kept += len(list)
	}
	warnings, lines := strings.Count(s.log.String(), "level=WARN"), strings.Count(s.log.String(), "\n")
	t.Logf("%d answers are kept, the longest look took %s, the honest agent had its answer with look %d after it asked, %d calls for the node of the flood, %d lines of which %d warn",
		kept, longest, answered, s.calls["flood"], lines, warnings)
	assert.Equal(t, 1, answered, "the look after it asked")
	assert.Len(t, s.posted, 1)
	require.Len(t, s.r.journal.evictions, 1)
	assert.Equal(t, "honest", s.r.journal.evictions[0].Node, "whose share it is")
	assert.NotZero(t, s.r.journal.evaluatedAt("honest"))
	assert.LessOrEqual(t, kept, lease.MaxRequests+1)
	assert.LessOrEqual(t, lines, 20)
}

func mustJSON(t testing.TB, of any) string {
	t.Helper()
	text, err := json.Marshal(of)
	require.NoError(t, err)
	return string(text)
}

// Requests within the bounds, of another moment with each beat: they are judged at
// the node's pace, and fill neither book nor log.
func TestFloodOfChangesJudgedAtNodePace(t *testing.T) {
	s := newFixture(t)
	s.node("flood")
	s.node("honest", "web")
	for i := range 50 {
		s.asks("flood", many(lease.MaxRequests, noon.Add(time.Duration(i)*time.Second))...)
		s.r.round(t.Context())
	}
	s.asks("flood", many(lease.MaxRequests, noon.Add(time.Hour))...)
	s.asks("honest", lease.Request{UID: "web", Namespace: "shop", Name: "web", Since: lease.Micro(noon)})
	s.r.round(t.Context())
	require.Len(t, s.answers("honest"), 1)
	assert.Equal(t, lease.Accepted, s.answers("honest")[0].Result)
	shown := map[string]int{}
	for range 2 * maxOfNode {
		s.r.recordAnswer(PendingRequest{&Judged{Agent: &Agent{Name: "flood"}}, request("p1")}, CodeGone, lease.Answer{})
	}
	for _, a := range s.r.answered {
		shown[a.Node]++
	}
	assert.Equal(t, map[string]int{"honest": 1, "flood": maxOfNode}, shown)
	assert.LessOrEqual(t, s.calls["no such pod"], 2*evalBurst, "800 were asked for; a busy machine takes some seconds")
	assert.LessOrEqual(t, len(s.r.journal.answers["flood"]), lease.MaxRequests)
	assert.LessOrEqual(t, strings.Count(s.log.String(), "\n"), 2*logBurst)
	assert.Less(t, len(s.leases["flood"].Annotations[lease.AnswersAnnotation]), 128<<10)
}

// The Lease has no room for an answer, because its agent has filled it: that is
// said a few times, and its pods stay.
func TestLeaseWithoutSpaceForAnswer(t *testing.T) {
	s := newFixture(t)
	s.node("full", "web")
	s.beat("full", map[string]string{"junk": strings.Repeat("x", annotationsLimit-1024)})
	s.asks("full", lease.Request{UID: "web", Namespace: "shop", Name: "web", Since: lease.Micro(noon)})
	s.leases["full"].Annotations["junk"] += strings.Repeat("x", 900)
	for range 200 {
		s.beat("full", nil)
		s.r.round(t.Context())
	}
	assert.Empty(t, s.posted)
	assert.LessOrEqual(t, strings.Count(s.log.String(), "\n"), 2*logBurst)
	s.beat("full", map[string]string{"junk": "", lease.EvictionsAnnotation: strings.Repeat("x", annotationsLimit-1024)})
	kept := 0
	for _, value := range s.r.cache.agents["full"].Lease.Annotations {
		kept += len(value)
	}
	assert.Less(t, kept, 64<<10, "and its agent fills no memory either")
}

// As many as there may be, each as long as it may be, and all who went.
func TestLeaseFitsLongestAnswers(t *testing.T) {
	var carried lease.Content
	reason := lease.Truncate(strings.Repeat("<", 2*lease.MaxReason), lease.MaxReason)
	owner := OwnerOf(pod(func(p *corev1.Pod) {
		p.Namespace = strings.Repeat("n", 63)
		p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = strings.Repeat("K", maxOwner-63-253-2), strings.Repeat("o", 253)
	}))
	require.Len(t, owner, maxOwner)
	for i := range lease.MaxRequests {
		r := lease.Request{UID: fmt.Sprintf("%064d", i), Since: lease.Micro(noon)}
		carried.Requests = append(carried.Requests, r)
		carried.Answers = append(carried.Answers, lease.Answer{UID: r.UID, Since: r.Since, Result: lease.Refused, Code: string(CodeWrongNode), Reason: reason, RetryAfterSeconds: 600, At: lease.Micro(noon)})
	}
	for i := range maxEvictionsOfNode + 1 + 2*fairnessPeriods { // one more is noted, and what went past a brake counts longer
		carried.Answers = append(carried.Answers, lease.Answer{UID: fmt.Sprintf("%064d", 1000+i), Since: lease.Micro(noon), Owner: owner, Result: lease.Accepted, PassedBrake: string(BrakeCommon), At: lease.Micro(noon)})
	}
	list := Answers(noon, DefaultSettings(), carried, nil)
	require.Len(t, list, lease.MaxRequests+maxEvictionsOfNode+1+2*fairnessPeriods)
	text := mustJSON(t, list)
	t.Logf("%d answers have %d bytes", len(list), len(text))
	_, err := lease.ReadContent(map[string]string{lease.AnswersAnnotation: text})
	require.NoError(t, err)
}

// An owner's kind is whatever the pod's maker wrote.
func TestOwnerNameBounded(t *testing.T) {
	named := func(kind string) string {
		return OwnerOf(pod(func(p *corev1.Pod) { p.OwnerReferences[0].Kind = kind }))
	}
	assert.Equal(t, "shop/ReplicaSet/web", named("ReplicaSet"))
	for _, kind := range []string{strings.Repeat("K", 100_000), "a\nb", "<b>", `a"b`, `a\b`, "ключ"} {
		got := named(kind)
		assert.Regexp(t, `^shop/sha256:[0-9a-f]{64}$`, got)
		assert.Equal(t, got, named(kind))
		assert.NotEqual(t, got, named(kind+"2"))
	}
}

func TestEvictionGraceBoundedByController(t *testing.T) {
	e := DefaultSettings().Evictions
	e.MaxGrace, e.ForceGraceZero = 40*time.Second, []string{"trusted"}
	for _, row := range []struct {
		plugin     string
		asked, own *int64
		want       int64
	}{
		{"files", new(int64(0)), nil, 1},
		{"files", new(int64(-5)), nil, 1},
		{"files", new(int64(1 << 40)), nil, 40},
		{"files", new(int64(7)), new(int64(3600)), 7},
		{"files", nil, new(int64(3600)), 40},
		{"files", nil, new(int64(0)), 1},
		{"files", nil, nil, 30},
		{"", new(int64(0)), nil, 1},
		{"trusted", new(int64(0)), nil, 0},
		{"trusted", new(int64(-5)), nil, 1},
		{"trusted", new(int64(1 << 40)), nil, 40},
		{"trusted", nil, new(int64(0)), 1},
	} {
		r := request("p1")
		r.Plugin, r.GraceSeconds = row.plugin, row.asked
		p := pod(func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = row.own })
		assert.Equal(t, evict.Victim{UID: "p1", Namespace: "shop", Name: "web-5c7d-x", GraceSeconds: row.want}, victim(r, p, e), "%+v", row)
	}
}

// Each look costs the whole fleet: a request that changes all the time does not
// call for more than one before the next.
func TestAgentCacheWakesOncePerSecond(t *testing.T) {
	s := newAgentCache()
	rings := 0
	for i := range 100 { // one second
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
			lease.EvictionsAnnotation: mustJSON(t, []lease.Request{{UID: "u", Namespace: "s", Name: "p", Since: lease.Micro(noon.Add(time.Duration(i) * time.Second))}}),
		}}}
		if s.setLease("n", l, noon.Add(time.Duration(i)*10*time.Millisecond)) {
			rings++
		}
	}
	assert.Equal(t, 1, rings)
	assert.True(t, s.setLease("n", &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
		lease.EvictionsAnnotation: mustJSON(t, []lease.Request{{UID: "v", Namespace: "s", Name: "p", Since: lease.Micro(noon)}}),
	}}}, noon.Add(reconcileInterval)))
}

// One node makes the difference, and changes its word with each beat.
func TestCommonCauseFlapLogBounded(t *testing.T) {
	s := newFixture(t)
	for i := range 200 {
		g := calm(pressed("disk", 30+i%2))
		g.Time = noon.Add(time.Duration(i) * time.Second / 10)
		s.r.publishCommonCause(g)
	}
	assert.LessOrEqual(t, len(s.told), logBurst)
	assert.LessOrEqual(t, strings.Count(s.log.String(), "\n"), logBurst+1)
	assert.NotEmpty(t, s.told)
}

// The answer to a request that was withdrawn meanwhile ends the note that its pod
// may go.
func TestAnswerKeptUntilInLease(t *testing.T) {
	note := accepted("p1", "o", 0)
	note.Since = metav1.MicroTime{}
	blocked := lease.Answer{UID: "p1", Since: lease.Micro(noon), Result: lease.Blocked, At: lease.Micro(noon)}
	other := lease.Answer{UID: "p2", Since: lease.Micro(noon), Result: lease.Blocked, At: lease.Micro(noon)}
	a := carrying("n", note)
	j := &Judgement{Agents: []Judged{a}}
	b := newJournal()
	b.answers["n"] = []lease.Answer{other, note, blocked}
	b.prune(noon, noon, DefaultSettings(), j)
	b.prune(noon.Add(time.Minute), noon, DefaultSettings(), j)
	assert.Equal(t, map[string]time.Time{"p1": noon}, b.seen, "when it was seen first")
	assert.Equal(t, []lease.Answer{blocked}, b.answers["n"])
	assert.Empty(t, Answers(noon, DefaultSettings(), a.Carried, b.answers["n"]))
	a.Carried.Answers = nil
	b.prune(noon, noon, DefaultSettings(), j)
	assert.Empty(t, b.answers)
	b.answers["gone"] = []lease.Answer{note}
	b.node("gone")
	b.prune(noon, noon, DefaultSettings(), j)
	assert.Empty(t, b.answers, "what is known of a node goes with it")
	assert.Empty(t, b.nodes)
}

// That a Lease cannot be read is said once, and shown while it is so.
func TestLeaseUnreadableLoggedAndReported(t *testing.T) {
	s := newFixture(t)
	s.node("odd", "web")
	s.node("well")
	s.beat("odd", map[string]string{lease.NodeAnnotation: `{"pressure":7}`})
	s.asks("odd", lease.Request{UID: "web", Namespace: "shop", Name: "web", Since: lease.Micro(noon)})
	for range 5 {
		s.beat("odd", nil)
		s.r.round(t.Context())
	}
	assert.Equal(t, 1, strings.Count(s.log.String(), "level=WARN"), s.log.String())
	require.Len(t, s.r.Report().Unreadable, 1)
	assert.Equal(t, "odd", s.r.Report().Unreadable[0].Node)
	assert.Contains(t, s.r.Report().Unreadable[0].Reason, "plimsoll.dev/node-report")
	require.Len(t, s.answers("odd"), 1)
	assert.Equal(t, string(CodeUnreadable), s.answers("odd")[0].Code)
	assert.Empty(t, s.posted)
	s.beat("odd", map[string]string{lease.NodeAnnotation: `{}`})
	s.r.round(t.Context())
	assert.Empty(t, s.r.Report().Unreadable)
}
