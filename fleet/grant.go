package fleet

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

// Code is why an eviction was not granted, in one word.
type Code string

// The codes.
const (
	CodeBlind     Code = "blind"     // many agents seem silent: nobody knows how the cluster is
	CodeUnread    Code = "unread"    // what the Lease carries cannot be read, so who went is not known
	CodeCommon    Code = "common"    // many nodes have the pressure that it names
	CodeZone      Code = "zone"      // too many nodes of the zone keep pods away
	CodeShare     Code = "share"     // the node has had its share of the cluster's budget
	CodeCluster   Code = "cluster"   // the cluster's budget is spent
	CodeOwner     Code = "owner"     // the owner's is
	CodeElsewhere Code = "elsewhere" // the pod is not on the node that asks
	CodeProtected Code = "protected" // it is never evicted
	CodeGone      Code = "gone"      // there is no such pod
	// CodeUnresolved: where its volumes are cannot be read, or not in time.
	CodeUnresolved Code = "unresolved"
)

// Ask is a request that was not answered.
type Ask struct {
	*Judged
	lease.Request
}

// Went is one pod that was evicted, or may have been.
type Went struct {
	UID, Owner string
	Node, Zone string
	Time       time.Time
	// Past is the brake that let it go all the same.
	Past Brake
}

// Ruling is what the controller's rules say of a request.
type Ruling struct {
	// Code and Why it is refused; empty: it may go.
	Code Code
	Why  string
	// After is in how long it is of use to ask again; 0: nobody knows.
	After time.Duration
	// Past is the brake that stands and lets it go all the same.
	Past Brake
}

// Known is what a leader knows of those who went, beside what the Leases say.
type Known struct {
	// Went are those that it let go itself, by its own clock.
	Went []Went
	// Server is the API server's time now: what a Lease says of times is by that
	// clock, whoever led.
	Server time.Time
	// Seen is when it saw first that a Lease says so, by UID and its own clock.
	Seen map[string]time.Time
}

// Grounds is what Grant decides by: the whole fleet at one moment.
type Grounds struct {
	Time     time.Time
	Settings Settings
	Blind    bool
	// Pods in the cluster; 0: not known.
	Pods int
	// Agents that are heard, and how many of them have each pressure, at soft or
	// above and at hard: by resource, and by the outer plugin that says so.
	Agents        int
	Pressed, Hard Pressures
	// Zones of the Nodes with an agent.
	Zones map[string]Zone
	// Went are those of the longest period that is counted.
	Went []Went
}

// Pressures count nodes.
type Pressures struct {
	Resources, Plugins map[string]int
}

func newPressures() Pressures {
	return Pressures{Resources: map[string]int{}, Plugins: map[string]int{}}
}

// Zone counts the Nodes with an agent that is heard and which are up or pressed, and
// those that keep pods away because of a pressure that lasts: by a taint, or because
// they are not ready.
type Zone struct {
	Nodes   int `json:"nodes"`
	Tainted int `json:"tainted"`
}

// NewGrounds of what was judged. Who went is known from the answers that the
// Leases carry, so that a new leader knows it too, and from what this one did.
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

// went is when, by this process's own clock: as long ago as it is by the API
// server's, and no later than it was seen. A time ahead ends by that.
func (k *Known) went(a lease.Answer, now time.Time) time.Time {
	at := now.Add(-max(0, k.Server.Sub(a.At.Time)))
	if seen, is := k.Seen[a.UID]; is && seen.Before(at) {
		return seen
	}
	return at
}

// hear what an agent says of its node. Of one whose agent is not heard nobody knows:
// it counts neither as pressed nor as one that is not. One that is not ready counts
// all the same, for a pressure that is wrong everywhere makes nodes so: the brake
// would go as they do. There is no room on it: in its zone it keeps pods away while
// it is pressed, and else counts on neither side.
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

// Limit is how many pods may go in each period.
func (g *Grounds) Limit() int {
	return max(1, int(g.Settings.Evictions.Share*float64(g.Pods)))
}

// Spent is how many went in this period.
func (g *Grounds) Spent() int {
	return len(g.within(g.Settings.Evictions.Per, func(Went) bool { return true }))
}

// within are those of a time, the oldest first.
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

// Refuse says why an eviction is not granted, whichever pod it is; no code: it
// may be.
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

// mostOfNode is how many pods of one node may count at a time: its Lease has room
// for no more.
const mostOfNode = 64

// shared says why the node leaves what there is of the budget to others; empty:
// it need not. Whoever has a node's token could else spend the budget for all of
// them. A node that has had some leaves as much as it takes, in a period and in
// two: of a budget of one pod it has every other.
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

// RefusePod says why this pod does not go; nil: there is none of that name. Where
// its volumes are is judged apart.
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

// placed says why a pod does not go that its volumes may bind to its node. Where
// that is not known it waits: it holds for this pod alone, which may name as many
// claims as its owner likes, and others are asked for meanwhile.
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

// OwnerOf a pod: who makes it again.
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

// maxOwner bounds an owner's name in bytes. Whoever makes a pod names its owner's
// kind, at any length, and what names it must fit into the Lease.
const maxOwner = 400

// result that tells an agent of a code.
func (c Code) result() lease.Result {
	switch c {
	case CodeGone:
		return lease.Gone
	case CodeUnresolved: // an agent takes a refusal that it does not know for one of everybody
		return lease.Blocked
	default:
		return lease.Refused
	}
}

// Asks are the requests that nobody answered, in fair order: the first of each
// node, then the second of each, nodes that were judged least recently first, then
// those that asked first. What an agent asks for counts while its Lease is
// renewed: of one that this process has not heard, or not for a while, nobody
// knows whether it wants it still. The time that a request bears is by the node's
// clock, and tells it from others only.
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

// Answers are what a Lease should say: the answers to what is asked, and who
// went or may have, as long as that counts by the API server's time.
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

// counts: it answers what is asked, or says who went not long ago.
func counts(server time.Time, s Settings, asked []lease.Request, a lease.Answer) bool {
	return slices.ContainsFunc(asked, func(r lease.Request) bool { return answers(a, r) }) ||
		spends(a) && server.Sub(a.At.Time) < s.Evictions.countedPast(Brake(a.Past))
}

// spends a budget: the pod went, or may have. A dry run's answer has no owner.
func spends(a lease.Answer) bool { return a.Result == lease.Accepted && a.Owner != "" }

// replaces a: b is the later answer to the same request, or what the API server
// said of a pod that was noted. Where it knew no such pod, it may have gone by us.
func replaces(b, a lease.Answer) bool {
	return b.UID == a.UID && (b.Since.Equal(&a.Since) || a.Since.IsZero() && b.Code == "" && b.Result != lease.Gone)
}
