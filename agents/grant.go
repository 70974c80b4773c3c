package agents

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// Code is why an eviction request was refused, in one word.
type Code string

// The codes.
const (
	CodeBlind     Code = "blind"     // full disruption: too many agents are silent
	CodeUnread    Code = "unread"    // the Lease annotations cannot be read, so past evictions are unknown
	CodeCommon    Code = "common"    // the pressure is on many nodes
	CodeZone      Code = "zone"      // too many nodes of the zone keep pods away
	CodeShare     Code = "share"     // the node has used its share of the cluster eviction limit
	CodeCluster   Code = "cluster"   // the cluster eviction limit is reached
	CodeOwner     Code = "owner"     // a pod of the same owner was evicted recently
	CodeElsewhere Code = "elsewhere" // the pod is not on the requesting node
	CodeProtected Code = "protected" // the pod is protected
	CodeGone      Code = "gone"      // the pod does not exist any more
	// CodeUnresolved: its volumes cannot be read, or not in time.
	CodeUnresolved Code = "unresolved"
)

// Ask is a pending eviction request.
type Ask struct {
	*Judged
	lease.Request
}

// Went is one pod that was evicted, or whose outcome is unknown.
type Went struct {
	UID, Owner string
	Node, Zone string
	Time       time.Time
	// Past is the brake that the eviction passed; empty: none was on.
	Past Brake
}

// Ruling is the controller's decision on a request.
type Ruling struct {
	// Code and Why it is refused; empty: it is approved.
	Code Code
	Why  string
	// After is the retry delay; 0: unknown.
	After time.Duration
	// Past is the brake that is on and that the eviction passes.
	Past Brake
}

// Known is what a leader knows of past evictions beside the Leases.
type Known struct {
	// Went are its own evictions, by its own clock.
	Went []Went
	// Server is the API server's time now: times in Leases are by that clock,
	// whichever leader wrote them.
	Server time.Time
	// Seen is when an eviction was first seen in a Lease, by UID and its own clock.
	Seen map[string]time.Time
}

// Grounds is the input of Refuse and RefusePod: the whole cluster at one moment.
type Grounds struct {
	Time     time.Time
	Settings Settings
	Blind    bool
	// Pods in the cluster; 0: unknown.
	Pods int
	// Agents that are not silent, and how many of their nodes have each pressure, at
	// soft or above and at hard: by resource, and by the reporting outer plugin.
	Agents        int
	Pressed, Hard Pressures
	// Zones of the Nodes with an agent.
	Zones map[string]Zone
	// Went are the evictions of the longest period that counts.
	Went []Went
}

// Pressures count nodes.
type Pressures struct {
	Resources, Plugins map[string]int
}

func newPressures() Pressures {
	return Pressures{Resources: map[string]int{}, Plugins: map[string]int{}}
}

// Zone counts the Nodes whose agent is not silent and that are up or have pressure,
// and those of them that keep pods away because of a lasting pressure: by a taint, or
// because they are not ready.
type Zone struct {
	Nodes   int `json:"nodes"`
	Tainted int `json:"tainted"`
}

// NewGrounds builds the input from the judged agents. Past evictions come from the
// answers in the Leases, so that a new leader knows them too, and from this leader's
// own state.
func NewGrounds(now time.Time, s Settings, j *Judgement, k Known) Grounds {
	g := Grounds{Time: now, Settings: s, Blind: j.Blind, Pressed: newPressures(), Hard: newPressures(), Zones: map[string]Zone{}, Went: slices.Clone(k.Went)}
	known := map[string]bool{}
	for _, w := range k.Went {
		known[w.UID] = true
	}
	for i := range j.Agents {
		a := &j.Agents[i]
		if a.State != Silent {
			g.hear(a)
		}
		for _, answer := range a.Carried.Answers {
			if spends(answer) && !known[answer.UID] {
				known[answer.UID] = true
				g.Went = append(g.Went, Went{UID: answer.UID, Owner: answer.Owner, Node: a.Name, Zone: a.zone(), Time: k.went(answer, now), Past: Brake(answer.Past)})
			}
		}
	}
	return g
}

// went converts the time of an eviction to this process's clock: as long ago as by
// the API server's, and no later than it was first seen, so that a time in the future
// still expires.
func (k *Known) went(a lease.Answer, now time.Time) time.Time {
	at := now.Add(-max(0, k.Server.Sub(a.At.Time)))
	if seen, is := k.Seen[a.UID]; is && seen.Before(at) {
		return seen
	}
	return at
}

// hear counts the report of one agent. Nodes of silent agents count neither as
// pressed nor as calm. Nodes that are not ready count: a pressure that is wrong
// everywhere makes nodes not ready, and the brake must not end with that. They have no
// capacity either: in its zone such a node counts as tainted while it has pressure, and
// otherwise not at all.
func (g *Grounds) hear(a *Judged) {
	r := &a.Carried.Report
	z, pressed := g.Zones[a.zone()], len(r.Pressure)+len(r.Plugins) > 0 // a taint stays on for a while after
	if pressed || !a.down() {
		z.Nodes++
	}
	if pressed && (a.keepsAway() || a.down()) {
		z.Tainted++
	}
	g.Zones[a.zone()] = z
	g.Agents++
	count := func(all, hard map[string]int, levels map[string]string) {
		for name, level := range levels {
			all[name]++
			if level == lease.LevelHard {
				hard[name]++
			}
		}
	}
	count(g.Pressed.Resources, g.Hard.Resources, r.Pressure)
	count(g.Pressed.Plugins, g.Hard.Plugins, r.Plugins)
}

// Limit is how many pods may be evicted in each period.
func (g *Grounds) Limit() int {
	return max(1, int(g.Settings.Evictions.Share*float64(g.Pods)))
}

// Spent is how many pods were evicted in this period.
func (g *Grounds) Spent() int {
	return len(g.within(g.Settings.Evictions.Per, func(Went) bool { return true }))
}

// within are the matching evictions of the last period, the oldest first.
func (g *Grounds) within(period time.Duration, is func(Went) bool) []Went {
	var list []Went
	for _, w := range g.Went {
		if g.Time.Sub(w.Time) < period && is(w) {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(a, b Went) int { return a.Time.Compare(b.Time) })
	return list
}

// Refuse applies the rules that do not depend on the pod; a Ruling without a code:
// approved so far.
func (g *Grounds) Refuse(a Ask) Ruling {
	e := g.Settings.Evictions
	switch {
	case g.Blind:
		return Ruling{Code: CodeBlind, Why: "full disruption: too many agents are silent"}
	case a.Odd != nil:
		return Ruling{Code: CodeUnread, Why: "past evictions of this node are unknown: " + a.Odd.Error()}
	}
	braked := g.brake(a)
	if braked.Code != "" {
		return braked
	}
	if spent := g.within(e.Per, func(w Went) bool { return w.UID != a.UID }); len(spent) >= g.Limit() {
		next := g.left(spent[len(spent)-g.Limit()], e.Per)
		return Ruling{Code: CodeCluster, After: next, Why: fmt.Sprintf("cluster eviction limit reached: %d of %d pods in %s, %d evicted; next eviction in %s",
			g.Limit(), g.Pods, e.Per, len(spent), next)}
	}
	if why := g.shared(a); why != "" {
		return Ruling{Code: CodeShare, Why: why}
	}
	return Ruling{Past: braked.Past}
}

// mostOfNode is how many counting evictions one node may have: the size limit of its
// Lease's annotation.
const mostOfNode = 64

// shared says why the rest of the cluster eviction limit is reserved for other nodes;
// empty: it is not. Otherwise one node's token could use up the limit for all. A node
// with evictions must leave as many as it had, over one period and over two: of a limit
// of one pod it gets every second period.
func (g *Grounds) shared(a Ask) string {
	e := g.Settings.Evictions
	others := func(w Went) bool { return w.UID != a.UID }
	own := func(w Went) bool { return w.UID != a.UID && w.Node == a.Judged.Name }
	if n := len(g.within(e.counted(), own)); n >= mostOfNode {
		return fmt.Sprintf("%d pods of this node were evicted in %s, the maximum for one node", n, e.counted())
	}
	if g.Agents < 2 {
		return ""
	}
	for periods := range 2 {
		period := e.Per * time.Duration(periods+1)
		mine, left := len(g.within(period, own)), (periods+1)*g.Limit()-len(g.within(period, others))
		if mine > 0 && mine >= left {
			return fmt.Sprintf("%d pods of this node were evicted in %s; the remaining %d of the cluster eviction limit are reserved for other nodes", mine, period, max(0, left))
		}
	}
	return ""
}

func (g *Grounds) left(w Went, period time.Duration) time.Duration {
	return (period - g.Time.Sub(w.Time)).Round(time.Second)
}

// RefusePod applies the rules about the pod; nil: it does not exist. Its volumes are
// checked separately.
func (g *Grounds) RefusePod(a Ask, pod *corev1.Pod) Ruling {
	switch {
	case pod == nil:
		return Ruling{Code: CodeGone, Why: "pod not found"}
	case string(pod.UID) != a.UID:
		return Ruling{Code: CodeGone, Why: "pod not found: the one of that name has another UID"}
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return Ruling{Code: CodeGone, Why: "pod has terminated: " + string(pod.Status.Phase)}
	case pod.Spec.NodeName != a.Node.Name:
		return Ruling{Code: CodeElsewhere, Why: fmt.Sprintf("pod is on node %q", pod.Spec.NodeName)}
	}
	if why := pods.Protected(pod, g.Settings.Protect); len(why) > 0 {
		return protected(why)
	}
	owner := OwnerOf(pod)
	period := g.Settings.Evictions.PerOwner
	if of := g.within(period, func(w Went) bool { return w.Owner == owner && w.UID != a.UID }); len(of) > 0 {
		last := of[len(of)-1]
		return Ruling{Code: CodeOwner, After: g.left(last, period), Why: fmt.Sprintf("a pod of %s was evicted %s ago; next eviction in %s", owner, g.Time.Sub(last.Time).Round(time.Second), g.left(last, period))}
	}
	return Ruling{}
}

func protected(why []pods.Protection) Ruling {
	return Ruling{Code: CodeProtected, Why: "never evicted: " + why[0].Why}
}

// placed refuses a pod that its volumes bind to its node. Where that is unresolved the
// request waits, and other requests are evaluated meanwhile: a pod may name as many
// claims as its owner likes.
func placed(why []pods.Protection) Ruling {
	known := slices.DeleteFunc(slices.Clone(why), func(p pods.Protection) bool { return p.Code == pods.Unresolved })
	switch {
	case len(known) > 0:
		return protected(known)
	case len(why) > 0:
		return Ruling{Code: CodeUnresolved, Why: why[0].Why, After: askAgain}
	}
	return Ruling{}
}

// OwnerOf a pod: the controller that recreates it.
func OwnerOf(pod *corev1.Pod) string {
	owner := evict.Owner(pod.Namespace, "", pod.Name)
	if ref := metav1.GetControllerOf(pod); ref != nil {
		owner = evict.Owner(pod.Namespace, ref.Kind, ref.Name)
	}
	if len(owner) > maxOwner || strings.ContainsFunc(owner, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`<>&"\\`, c) }) {
		return fmt.Sprintf("%s/sha256:%x", pod.Namespace, sha256.Sum256([]byte(owner)))
	}
	return owner
}

// maxOwner bounds an owner's name in bytes: the creator of a pod chooses the kind
// of its owner at any length, and the name must fit into the Lease.
const maxOwner = 400

// result is the lease.Result of a code.
func (c Code) result() lease.Result {
	switch c {
	case CodeGone:
		return lease.Gone
	case CodeUnresolved: // an agent treats an unknown refusal as one of all pods
		return lease.Blocked
	default:
		return lease.Refused
	}
}

// Asks are the pending requests in fair order: the first of each node, then the second
// of each; nodes that were evaluated least recently first, then the oldest request.
// Only requests in a Lease that this process has seen renewed recently count: others
// may be obsolete. The time in a request is by the node's clock and only identifies it.
func Asks(now time.Time, s Settings, j *Judgement, judged func(node string) time.Time) []Ask {
	type place struct {
		Ask
		turn   int
		judged time.Time
	}
	var list []place
	for i := range j.Agents {
		a := &j.Agents[i]
		if now.Sub(a.Renewed) >= s.Grace/2 {
			continue
		}
		turn := 0
		for _, r := range a.Carried.Requests {
			if !answered(r, a.Carried.Answers) {
				list = append(list, place{Ask{a, r}, turn, judged(a.Name)})
				turn++
			}
		}
	}
	slices.SortStableFunc(list, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), a.judged.Compare(b.judged), a.Asked.Compare(b.Asked))
	})
	asks := make([]Ask, len(list))
	for i, p := range list {
		asks[i] = p.Ask
	}
	return asks
}

func answers(a lease.Answer, r lease.Request) bool { return a.UID == r.UID && a.Since.Equal(&r.Since) }

func answered(r lease.Request, list []lease.Answer) bool {
	return slices.ContainsFunc(list, func(a lease.Answer) bool { return answers(a, r) })
}

// Answers is the content of the Lease's annotation: answers to the current requests,
// and evictions, or possible ones, as long as they count by the API server's time.
func Answers(server time.Time, s Settings, carried lease.Carried, given []lease.Answer) []lease.Answer {
	list := []lease.Answer{}
	all := slices.Concat(carried.Answers, given)
	for i, a := range all {
		if counts(server, s, carried.Requests, a) && !slices.ContainsFunc(all[i+1:], func(b lease.Answer) bool { return replaces(b, a) }) {
			list = append(list, a)
		}
	}
	return list
}

// counts tells whether an answer belongs to a current request or is a recent eviction.
func counts(server time.Time, s Settings, asked []lease.Request, a lease.Answer) bool {
	return slices.ContainsFunc(asked, func(r lease.Request) bool { return answers(a, r) }) ||
		spends(a) && server.Sub(a.At.Time) < s.Evictions.countedPast(Brake(a.Past))
}

// spends tells whether an answer counts as an eviction: the pod was evicted, or may
// have been. A dry run's answer has no owner.
func spends(a lease.Answer) bool { return a.Result == lease.Accepted && a.Owner != "" }

// replaces tells whether b supersedes a: it is a later answer to the same request, or
// the API server's answer on a pod that was noted before. Gone supersedes nothing: this
// controller may have evicted the pod itself.
func replaces(b, a lease.Answer) bool {
	return b.UID == a.UID && (b.Since.Equal(&a.Since) || a.Since.IsZero() && b.Code == "" && b.Result != lease.Gone)
}
