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
	CodeFullDisruption Code = "full-disruption" // full disruption: too many agents are silent
	CodeUnreadable     Code = "unreadable"      // the Lease annotations cannot be read, so past evictions are unknown
	CodeCommon         Code = "common"          // the pressure is on many nodes
	CodeZone           Code = "zone"            // too many nodes of the zone keep pods away
	CodeShare          Code = "share"           // the node has used its share of the cluster eviction limit
	CodeCluster        Code = "cluster"         // the cluster eviction limit is reached
	CodeOwner          Code = "owner"           // a pod of the same owner was evicted recently
	CodeWrongNode      Code = "wrong-node"      // the pod is not on the requesting node
	CodeProtected      Code = "protected"       // the pod is protected
	CodeGone           Code = "gone"            // the pod does not exist any more
	// CodeUnresolved: its volumes cannot be read, or not in time.
	CodeUnresolved Code = "volumes-unknown"
	// CodeNamespaceUnknown: it cannot be read whether its namespace is a Velero's.
	CodeNamespaceUnknown Code = "namespace-unknown"
	// CodeOutcomeUnknown: the API server's answers do not tell whether the pod is evicted.
	CodeOutcomeUnknown Code = "outcome-unknown"
)

// PendingRequest is a pending eviction request.
type PendingRequest struct {
	*Judged
	lease.Request
}

// PastEviction is one pod that was evicted, or whose outcome is unknown.
type PastEviction struct {
	UID, Owner string
	Node, Zone string
	Time       time.Time
	// PastBrake is the brake that the eviction passed; empty: none was on.
	PastBrake Brake
	// Unknown: its outcome is unknown, and Time is that of the first try.
	Unknown bool
}

// Decision is the controller's decision on a request.
type Decision struct {
	// Code and Why it is refused; empty: it is approved.
	Code Code
	Why  string
	// RetryAfter is the retry delay; 0: unknown.
	RetryAfter time.Duration
	// PastBrake is the brake that is on and that the eviction passes.
	PastBrake Brake
}

// History is what a leader knows of past evictions beside the Leases.
type History struct {
	// Own are its own evictions, by its own clock.
	Own []PastEviction
	// Answers by node that its Lease may not have yet.
	Answers map[string][]lease.Answer
	// ServerTime is the API server's time now: times in Leases are by that clock,
	// whichever leader wrote them.
	ServerTime time.Time
	// FirstSeen is when an eviction was first seen in a Lease, by UID and its own clock.
	FirstSeen map[string]time.Time
}

// Evaluation is the input of Refuse and RefusePod: the whole cluster at one moment.
type Evaluation struct {
	Time           time.Time
	Settings       Settings
	FullDisruption bool
	// Pods in the cluster; 0: unknown.
	Pods int
	// Agents that are not silent, and how many of their nodes have each pressure, at
	// soft or above and at hard: by resource, and by the reporting outer plugin.
	Agents        int
	Pressed, Hard Pressures
	// Zones of the Nodes with an agent.
	Zones map[string]Zone
	// PastEvictions are the evictions of the longest period that counts.
	PastEvictions []PastEviction
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

// NewEvaluation builds the input from the judged agents. Past evictions come from the
// answers in the Leases, so that a new leader knows them too, and from this leader's
// own state.
func NewEvaluation(now time.Time, s Settings, j *Judgement, k History) Evaluation {
	g := Evaluation{Time: now, Settings: s, FullDisruption: j.FullDisruption, Pressed: newPressures(), Hard: newPressures(), Zones: map[string]Zone{}, PastEvictions: slices.Clone(k.Own)}
	known := map[string]bool{}
	for _, w := range k.Own {
		known[w.UID] = true
	}
	for i := range j.Agents {
		a := &j.Agents[i]
		if a.State != Silent {
			g.addReport(a)
		}
		for _, answer := range a.Carried.Answers {
			if countsAsEviction(answer) && !known[answer.UID] && !podStays(answer, k.Answers[a.Name]) {
				known[answer.UID] = true
				g.PastEvictions = append(g.PastEvictions, PastEviction{UID: answer.UID, Owner: answer.Owner, Node: a.Name, Zone: a.zone(), Time: k.evictedAt(answer, now), PastBrake: Brake(answer.PassedBrake), Unknown: answer.Since.IsZero()})
			}
		}
	}
	return g
}

// podStays tells whether a later answer of the API server says that the pod of a note stays.
func podStays(note lease.Answer, later []lease.Answer) bool {
	return slices.ContainsFunc(later, func(b lease.Answer) bool { return !countsAsEviction(b) && supersedes(b, note) })
}

// evictedAt converts the time of an eviction to this process's clock: as long ago as by
// the API server's, and no later than it was first seen, so that a time in the future
// still expires.
func (k *History) evictedAt(a lease.Answer, now time.Time) time.Time {
	at := now.Add(-max(0, k.ServerTime.Sub(a.At.Time)))
	if seen, is := k.FirstSeen[a.UID]; is && seen.Before(at) {
		return seen
	}
	return at
}

// addReport counts the report of one agent. Nodes of silent agents count neither as
// pressed nor as calm. Nodes that are not ready count: a pressure that is wrong
// everywhere makes nodes not ready, and the brake must not end with that. They have no
// capacity either: in its zone such a node counts as tainted while it has pressure, and
// otherwise not at all.
func (g *Evaluation) addReport(a *Judged) {
	r := &a.Carried.Report
	z, pressed := g.Zones[a.zone()], len(r.Pressure)+len(r.Plugins) > 0 // a taint stays on for a while after
	if pressed || !a.notReady() {
		z.Nodes++
	}
	if pressed && (a.repelsPods() || a.notReady()) {
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
func (g *Evaluation) Limit() int {
	return max(1, int(g.Settings.Evictions.Share*float64(g.Pods)))
}

// Spent is how many pods were evicted in this period.
func (g *Evaluation) Spent() int {
	return len(g.within(g.Settings.Evictions.Per, func(PastEviction) bool { return true }))
}

// within are the matching evictions of the last period, the oldest first.
func (g *Evaluation) within(period time.Duration, is func(PastEviction) bool) []PastEviction {
	var list []PastEviction
	for _, w := range g.PastEvictions {
		if g.Time.Sub(w.Time) < period && is(w) {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(a, b PastEviction) int { return a.Time.Compare(b.Time) })
	return list
}

// Refuse applies the rules that do not depend on the pod; a Ruling without a code:
// approved so far.
func (g *Evaluation) Refuse(a PendingRequest) Decision {
	e := g.Settings.Evictions
	switch {
	case g.FullDisruption:
		return Decision{Code: CodeFullDisruption, Why: "full disruption: too many agents are silent"}
	case a.ParseErr != nil:
		return Decision{Code: CodeUnreadable, Why: "past evictions of this node are unknown: " + a.ParseErr.Error()}
	}
	braked := g.brake(a)
	if braked.Code != "" {
		return braked
	}
	if spent := g.within(e.Per, func(w PastEviction) bool { return w.UID != a.UID }); len(spent) >= g.Limit() {
		next := g.remaining(spent[len(spent)-g.Limit()], e.Per)
		return Decision{Code: CodeCluster, RetryAfter: next, Why: fmt.Sprintf("cluster eviction limit reached: %d of %d pods in %s, %d evicted; next eviction in %s",
			g.Limit(), g.Pods, e.Per, len(spent), next)}
	}
	if why := g.reservedForOthers(a); why != "" {
		return Decision{Code: CodeShare, Why: why}
	}
	return Decision{PastBrake: braked.PastBrake}
}

// maxEvictionsOfNode is how many counting evictions one node may have: the size limit of its
// Lease's annotation.
const maxEvictionsOfNode = 64

// reservedForOthers says why the rest of the cluster eviction limit is reserved for other nodes;
// empty: it is not. Otherwise one node's token could use up the limit for all. A node
// with evictions must leave as many as it had, over one period and over two: of a limit
// of one pod it gets every second period.
func (g *Evaluation) reservedForOthers(a PendingRequest) string {
	e := g.Settings.Evictions
	others := func(w PastEviction) bool { return w.UID != a.UID }
	own := func(w PastEviction) bool { return w.UID != a.UID && w.Node == a.Judged.Name }
	if n := len(g.within(e.counted(), own)); n >= maxEvictionsOfNode {
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

func (g *Evaluation) remaining(w PastEviction, period time.Duration) time.Duration {
	return (period - g.Time.Sub(w.Time)).Round(time.Second)
}

// RefusePod applies the rules about the pod; nil: it does not exist. Its volumes are
// checked separately.
func (g *Evaluation) RefusePod(a PendingRequest, pod *corev1.Pod) Decision {
	switch {
	case pod == nil:
		return Decision{Code: CodeGone, Why: "pod not found"}
	case string(pod.UID) != a.UID:
		return Decision{Code: CodeGone, Why: "pod not found: the one of that name has another UID"}
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return Decision{Code: CodeGone, Why: "pod has terminated: " + string(pod.Status.Phase)}
	case pod.Spec.NodeName != a.Node.Name:
		return Decision{Code: CodeWrongNode, Why: fmt.Sprintf("pod is on node %q", pod.Spec.NodeName)}
	}
	if why := pods.ProtectionsWithoutVolumes(pod, g.Settings.Protect); len(why) > 0 {
		return protected(why)
	}
	owner := OwnerOf(pod)
	period := g.Settings.Evictions.PerOwner
	if of := g.within(period, func(w PastEviction) bool { return w.Owner == owner && w.UID != a.UID }); len(of) > 0 {
		last := of[len(of)-1]
		return Decision{Code: CodeOwner, RetryAfter: g.remaining(last, period), Why: fmt.Sprintf("a pod of %s was evicted %s ago; next eviction in %s", owner, g.Time.Sub(last.Time).Round(time.Second), g.remaining(last, period))}
	}
	return Decision{}
}

func protected(why []pods.Protection) Decision {
	return Decision{Code: CodeProtected, Why: "never evicted: " + why[0].Why}
}

// checkVolumes refuses a pod that its volumes bind to its node. Where that is unresolved the
// request waits, and other requests are evaluated meanwhile: a pod may name as many
// claims as its owner likes.
func checkVolumes(why []pods.Protection) Decision {
	known := slices.DeleteFunc(slices.Clone(why), func(p pods.Protection) bool { return p.Code == pods.Unresolved })
	switch {
	case len(known) > 0:
		return protected(known)
	case len(why) > 0:
		return Decision{Code: CodeUnresolved, Why: why[0].Why, RetryAfter: maxRetryDelay}
	}
	return Decision{}
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
	case CodeUnresolved, CodeNamespaceUnknown, CodeOutcomeUnknown: // an agent treats an unknown refusal as one of all pods
		return lease.Blocked
	default:
		return lease.Refused
	}
}

// PendingRequests are the pending requests in fair order: the first of each node, then the second
// of each; nodes that were evaluated least recently first, then the oldest request.
// Only requests in a Lease that this process has seen renewed recently count: others
// may be obsolete. The time in a request is by the node's clock and only identifies it.
func PendingRequests(now time.Time, s Settings, j *Judgement, judged func(node string) time.Time) []PendingRequest {
	type place struct {
		PendingRequest
		turn   int
		judged time.Time
	}
	var list []place
	for i := range j.Agents {
		a := &j.Agents[i]
		if now.Sub(a.LastRenewal) >= s.Grace/2 {
			continue
		}
		turn := 0
		for _, r := range a.Carried.Requests {
			if !answered(r, a.Carried.Answers) {
				list = append(list, place{PendingRequest{a, r}, turn, judged(a.Name)})
				turn++
			}
		}
	}
	slices.SortStableFunc(list, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), a.judged.Compare(b.judged), a.RequestedAt.Compare(b.RequestedAt))
	})
	asks := make([]PendingRequest, len(list))
	for i, p := range list {
		asks[i] = p.PendingRequest
	}
	return asks
}

func answersRequest(a lease.Answer, r lease.Request) bool {
	return a.UID == r.UID && a.Since.Equal(&r.Since)
}

func answered(r lease.Request, list []lease.Answer) bool {
	return slices.ContainsFunc(list, func(a lease.Answer) bool { return answersRequest(a, r) })
}

// Answers is the content of the Lease's annotation: answers to the current requests,
// and evictions, or possible ones, as long as they count by the API server's time.
func Answers(server time.Time, s Settings, carried lease.Content, given []lease.Answer) []lease.Answer {
	list := []lease.Answer{}
	all := slices.Concat(carried.Answers, given)
	for i, a := range all {
		if retained(server, s, carried.Requests, a, all[i+1:]) && !slices.ContainsFunc(all[i+1:], func(b lease.Answer) bool { return supersedes(b, a) }) {
			list = append(list, a)
		}
	}
	return list
}

// retained tells whether an answer belongs to a current request or is a recent eviction that
// no later answer repeats.
func retained(server time.Time, s Settings, asked []lease.Request, a lease.Answer, later []lease.Answer) bool {
	return slices.ContainsFunc(asked, func(r lease.Request) bool { return answersRequest(a, r) }) ||
		countsAsEviction(a) && server.Sub(a.At.Time) < s.Evictions.countedPast(Brake(a.PassedBrake)) &&
			!slices.ContainsFunc(later, func(b lease.Answer) bool { return repeats(b, a) })
}

// repeats tells whether b says that the pod of a, requested again, was evicted, and counts at
// least as long. A note does not: the API server may still refuse that try.
func repeats(b, a lease.Answer) bool {
	return b.UID == a.UID && countsAsEviction(b) && !b.Since.IsZero() && (a.PassedBrake == "" || a.PassedBrake == b.PassedBrake)
}

// countsAsEviction tells whether an answer counts as an eviction: the pod was evicted, or may
// have been. A dry run's answer has no owner.
func countsAsEviction(a lease.Answer) bool { return isEviction(a.Result) && a.Owner != "" }

// isEviction tells whether a result is an eviction, carried out by the API server or by
// another component.
func isEviction(r lease.Result) bool { return r == lease.Accepted || r == lease.InProgress }

// supersedes tells whether b supersedes a: it is a later answer to the same request, or
// the API server's answer on a pod that was noted before. Gone supersedes nothing: this
// controller may have evicted the pod itself. The answer to a dry run supersedes
// no eviction.
func supersedes(b, a lease.Answer) bool {
	if b.UID != a.UID || b.DryRun && countsAsEviction(a) {
		return false
	}
	return b.Since.Equal(&a.Since) || a.Since.IsZero() && b.Code == "" && b.Result != lease.Gone
}
