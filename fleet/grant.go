package fleet

import (
	"fmt"
	"maps"
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
	CodeCommon    Code = "common"    // many nodes have one pressure, or one of the plugin that asks
	CodeZone      Code = "zone"      // too many nodes of the zone are tainted
	CodeCluster   Code = "cluster"   // the cluster's budget is spent
	CodeOwner     Code = "owner"     // the owner's is
	CodeElsewhere Code = "elsewhere" // the pod is not on the node that asks
	CodeProtected Code = "protected" // it is never evicted
	CodeGone      Code = "gone"      // there is no such pod
)

// Ask is a request that was not answered.
type Ask struct {
	*Judged
	lease.Request
}

// Went is one pod that was evicted, or may have been.
type Went struct {
	UID, Owner string
	Time       time.Time
}

// Grounds is what Grant decides by: the whole fleet at one moment.
type Grounds struct {
	Time     time.Time
	Settings Settings
	Blind    bool
	// Pods in the cluster; 0: not known.
	Pods int
	// Agents that are heard, and how many of them have each pressure: by resource,
	// and by the outer plugin that says so.
	Agents  int
	Pressed map[string]int
	Plugins map[string]int
	// Zones of the Nodes with an agent.
	Zones map[string]Zone
	// Went are those of the longest period that is counted.
	Went []Went
}

// Zone counts the Nodes with an agent, and those that agents have tainted.
type Zone struct {
	Nodes   int `json:"nodes"`
	Tainted int `json:"tainted"`
}

// commonLeast: so few nodes are never a common cause, or nobody could go in a
// small cluster.
const commonLeast = 3

// NewGrounds of what was judged. Who went is known from the answers that the
// Leases carry, so that a new leader knows it too, and from what this one did.
func NewGrounds(now time.Time, s Settings, j *Judgement, did []Went) Grounds {
	g := Grounds{Time: now, Settings: s, Blind: j.Blind, Pressed: map[string]int{}, Plugins: map[string]int{}, Zones: map[string]Zone{}, Went: slices.Clone(did)}
	known := map[string]bool{}
	for _, w := range did {
		known[w.UID] = true
	}
	for i := range j.Agents {
		a := &j.Agents[i]
		z := g.Zones[a.zone()]
		z.Nodes++
		if a.tainted() {
			z.Tainted++
		}
		g.Zones[a.zone()] = z
		if a.State != Silent {
			g.hear(&a.Carried.Report)
		}
		for _, answer := range a.Carried.Answers {
			if spends(answer) && !known[answer.UID] {
				known[answer.UID] = true
				g.Went = append(g.Went, Went{UID: answer.UID, Owner: answer.Owner, Time: earlier(answer.At.Time, now)})
			}
		}
	}
	return g
}

// hear what an agent says of its node.
func (g *Grounds) hear(r *lease.NodeReport) {
	g.Agents++
	for resource := range r.Pressure {
		g.Pressed[resource]++
	}
	for plugin := range r.Plugins {
		g.Plugins[plugin]++
	}
}

// earlier of the two: another leader's clock may be ahead.
func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}

// Common are the pressures that have a common cause, in order: nothing is
// granted.
func (g *Grounds) Common() []string { return g.common(g.Pressed) }

// CommonPlugins are the outer plugins whose pressure has one. A plugin may be
// wrong everywhere: nothing is granted that it asks for itself.
func (g *Grounds) CommonPlugins() []string { return g.common(g.Plugins) }

func (g *Grounds) common(pressed map[string]int) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(pressed)) {
		if n := pressed[name]; n >= commonLeast && float64(n) > g.Settings.Evictions.CommonCause*float64(g.Agents) {
			list = append(list, name)
		}
	}
	return list
}

// Full are the zones of which too many nodes are tainted, each with the numbers,
// in order: nothing is granted there.
func (g *Grounds) Full() []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(g.Zones)) {
		if why := g.full(name); why != "" {
			list = append(list, why)
		}
	}
	return list
}

func (g *Grounds) full(name string) string {
	zone := g.Zones[name]
	most := max(1, int(g.Settings.Evictions.ZoneTainted*float64(zone.Nodes)))
	if zone.Tainted <= most {
		return ""
	}
	return fmt.Sprintf("%d of %d nodes of zone %q are tainted, %d may be", zone.Tainted, zone.Nodes, name, most)
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
func (g *Grounds) Refuse(a Ask) (Code, string) {
	e := g.Settings.Evictions
	switch common := g.Common(); {
	case g.Blind:
		return CodeBlind, "many agents are not heard: nobody knows how the cluster is"
	case a.Odd != nil:
		return CodeUnread, "who went from this node is not known: " + a.Odd.Error()
	case len(common) > 0:
		return CodeCommon, fmt.Sprintf("%d of %d nodes have pressure on %s: that has a common cause, which no eviction ends", g.Pressed[common[0]], g.Agents, strings.Join(common, ", "))
	case slices.Contains(g.CommonPlugins(), a.Plugin):
		return CodeCommon, fmt.Sprintf("%d of %d nodes have pressure, says plugin %s: that has a common cause, which no eviction ends", g.Plugins[a.Plugin], g.Agents, a.Plugin)
	}
	if why := g.full(a.zone()); why != "" {
		return CodeZone, why
	}
	if spent := g.within(e.Per, func(w Went) bool { return w.UID != a.UID }); len(spent) >= g.Limit() {
		return CodeCluster, fmt.Sprintf("%d of the cluster's %d pods may go in %s, and %d did: the next one in %s",
			g.Limit(), g.Pods, e.Per, len(spent), g.left(spent[len(spent)-g.Limit()], e.Per))
	}
	return "", ""
}

func (g *Grounds) left(w Went, period time.Duration) time.Duration {
	return (period - g.Time.Sub(w.Time)).Round(time.Second)
}

// RefusePod says why this pod does not go; nil: there is none of that name.
func (g *Grounds) RefusePod(a Ask, pod *corev1.Pod) (Code, string) {
	switch {
	case pod == nil:
		return CodeGone, "there is no pod of that name"
	case string(pod.UID) != a.UID:
		return CodeGone, "the pod of that name has another UID"
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return CodeGone, "it has ended: " + string(pod.Status.Phase)
	case pod.Spec.NodeName != a.Node.Name:
		return CodeElsewhere, fmt.Sprintf("it is on node %q", pod.Spec.NodeName)
	}
	if why := pods.Protected(pod, g.Settings.Protect); len(why) > 0 {
		return CodeProtected, "never evicted: " + why[0].Why
	}
	owner := OwnerOf(pod)
	period := g.Settings.Evictions.PerOwner
	if of := g.within(period, func(w Went) bool { return w.Owner == owner && w.UID != a.UID }); len(of) > 0 {
		return CodeOwner, fmt.Sprintf("a pod of %s went %s ago: the next one in %s", owner, g.Time.Sub(of[len(of)-1].Time).Round(time.Second), g.left(of[len(of)-1], period))
	}
	return "", ""
}

// OwnerOf a pod: who makes it again.
func OwnerOf(pod *corev1.Pod) string {
	if ref := metav1.GetControllerOf(pod); ref != nil {
		return evict.Owner(pod.Namespace, ref.Kind, ref.Name)
	}
	return evict.Owner(pod.Namespace, "", pod.Name)
}

// result that tells an agent of a code.
func (c Code) result() lease.Result {
	if c == CodeGone {
		return lease.Gone
	}
	return lease.Refused
}

// Asks are the requests that nobody answered, in the order in which they were
// seen. What an agent asks for counts while its Lease is renewed: of one that
// this process has not heard, or not for a while, nobody knows whether it wants
// it still.
func Asks(now time.Time, s Settings, j *Judgement) []Ask {
	var list []Ask
	for i := range j.Agents {
		a := &j.Agents[i]
		if now.Sub(a.Renewed) >= s.Grace/2 {
			continue
		}
		for _, r := range a.Carried.Requests {
			if !answered(r, a.Carried.Answers) {
				list = append(list, Ask{a, r})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Ask) int { return a.Asked.Compare(b.Asked) })
	return list
}

func answered(r lease.Request, answers []lease.Answer) bool {
	return slices.ContainsFunc(answers, func(a lease.Answer) bool { return a.UID == r.UID && a.Since.Equal(&r.Since) })
}

// Answers are what a Lease should say: the answers to what is asked, and who
// went or may have, as long as that counts.
func Answers(now time.Time, s Settings, carried lease.Carried, given []lease.Answer) []lease.Answer {
	list := []lease.Answer{}
	all := slices.Concat(carried.Answers, given)
	for i, a := range all {
		asked := slices.ContainsFunc(carried.Requests, func(r lease.Request) bool { return answered(r, all[i:i+1]) })
		counts := spends(a) && now.Sub(a.At.Time) < max(s.Evictions.Per, s.Evictions.PerOwner)
		if (asked || counts) && !slices.ContainsFunc(all[i+1:], func(b lease.Answer) bool { return replaces(b, a) }) {
			list = append(list, a)
		}
	}
	return list
}

// spends a budget: the pod went, or may have. A dry run's answer has no owner.
func spends(a lease.Answer) bool { return a.Result == lease.Accepted && a.Owner != "" }

// replaces a: b is the later answer to the same request, or what the API server
// said of a pod that was noted. Where it knew no such pod, it may have gone by us.
func replaces(b, a lease.Answer) bool {
	return b.UID == a.UID && (b.Since.Equal(&a.Since) || a.Since.IsZero() && b.Code == "" && b.Result != lease.Gone)
}
