package view

import (
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// documents is where the documents are published.
const documents = "https://github.com/plimsoll-dev/plimsoll/blob/main/docs/"

// Advice is what to do about a finding. The zero Advice is none.
type Advice struct {
	Do string
	// Doc treats the matter: "alerts.md#plimsollpressurehard", below docs.
	Doc string
}

// URL of the document.
func (a Advice) URL() string { return documents + a.Doc }

// The advice about what a page warns of.
func staleAdvice() Advice {
	return Advice{"See in the log of the agent what it waits for; the node may be starved, or the agent throttled.", "alerts.md#plimsollticksmissed"}
}

// Alarm is a reason not to trust a page's values.
type Alarm struct {
	Text   string
	Advice Advice
}

// StaleAlarm is about values of some age.
func StaleAlarm(age string) Alarm {
	return Alarm{"The newest sample is " + age + " old: all values below are stale.", staleAdvice()}
}

// ConfigAlarm is about a configuration that was refused.
func ConfigAlarm(why string) Alarm {
	return Alarm{
		"Configuration reload failed; the previous configuration stays in force: " + Printable(why),
		Advice{"plimsoll config check FILE names every mistake with its line; correct the file, it is read again by itself.", "alerts.md#plimsollconfigrejected"},
	}
}

// ConnectionAlarm is about a lost connection to the API server.
func ConnectionAlarm(age, why string) Alarm {
	return Alarm{
		"No connection to the API server for " + age + why + ": evictions are paused.",
		Advice{"Check the network to the API server and the agent's token; it connects again by itself.", "alerts.md#plimsollheartbeatfails"},
	}
}

// RoundsAlarm is about rounds that are stuck.
func RoundsAlarm(seconds float64) Alarm {
	return Alarm{
		"No round has ended for " + Age(time.Duration(seconds*float64(time.Second))) + ": conditions and the data mover budget below are as old, throttles may be too, and no pod is evicted.",
		Advice{"See in the log of the agent what it waits for: the disk of state.dir, the API server, or a file of the kernel.", "alerts.md#plimsollroundsstuck"},
	}
}

// UnsavedAlarm is about an eviction state that cannot be saved.
func UnsavedAlarm(seconds float64, why string) Alarm {
	return Alarm{
		"The eviction state has not been saved for " + Age(time.Duration(seconds*float64(time.Second))) + " (" + Printable(why) + "): a pod is evicted only a minute after that began, or at once where memory is below its floor, and a restarted agent may evict one more.",
		Advice{"Make the disk of state.dir writable, or free space on it; it is saved again by itself.", "alerts.md#plimsollstatenotsaved"},
	}
}

// MissedAlarm is about samples that were left out.
func MissedAlarm(missed uint64, age string) Alarm {
	return Alarm{Count(missed) + " samples missed since the start, the last one " + age + " ago: the sample before it took too long.", staleAdvice()}
}

// ProbesAdvice is about probes that failed.
func ProbesAdvice() Advice {
	return Advice{"plimsoll doctor on the node names what it lacks.", "troubleshooting.md#by-the-row-of-plimsoll-doctor"}
}

// RivalsAdvice is about other hosts of outer plugins.
func RivalsAdvice() Advice {
	return Advice{"Stop one of the two hosts, or say by plugins.beside what becomes of these plugins.", "katalyst.md#run-both-for-a-week"}
}

// AdviceOf a verdict; false: there is nothing to do.
func AdviceOf(s *State, v *plugins.Verdict) (Advice, bool) {
	switch {
	case v.Level > plugins.None && v.PerWorkload:
		return Advice{"Correct the requests or limits of the workload that the rule names.", "reading.md#plugins"}, true
	case v.Level > plugins.None:
		return Advice{relieve(s, v), "alerts.md#plimsollpressure" + v.Level.String()}, true
	case v.Absent != "" && noSpeed(s.Snapshot, v):
		return Advice{"Name the speed of the link in network.devices.", "reading.md#headline-and-verdicts"}, true
	case v.Partial && v.Absent != "":
		return Advice{"Wait for five minutes after a boot or a start. What is not judged then lacks what plimsoll doctor on the node names.", "reading.md#headline-and-verdicts"}, true
	case v.Partial:
		return Advice{"Wait: it is judged five minutes after a boot or a start, and a minute after its rule was changed.", "reading.md#headline-and-verdicts"}, true
	case v.Absent != "":
		return Advice{"plimsoll doctor on the node names what the rule lacks.", "reading.md#when-a-value-is-absent"}, true
	}
	return Advice{}, false
}

// relieve is what ends the pressure of a verdict.
func relieve(s *State, v *plugins.Verdict) string {
	switch v.Resource {
	case plugins.Memory, plugins.Disk, plugins.NetworkIO, plugins.CPU:
		p, known := causeOf(s, v)
		if !known {
			return findOut
		}
		return relieveFrom(s.Cluster, &p, snapshot.SharedResource(v.Resource))
	case plugins.Filesystem:
		if v.PerWorkload {
			return "Have the pod write to an emptyDir volume with a size limit, or give it a request of ephemeral-storage."
		}
		return "Find what fills it (du -x " + Printable(v.Scope) + ") and whose it is before you delete anything, or enlarge the filesystem."
	}
	return "See the reason of the plugin, and its own documents."
}

// causeOf a verdict is its first candidate, or else the main culprit of its resource;
// false: neither is known.
func causeOf(s *State, v *plugins.Verdict) (snapshot.Party, bool) {
	if len(v.Candidates) > 0 {
		c := &v.Candidates[0]
		p := snapshot.Party{Cgroup: c.Cgroup, Name: c.Name, PodUID: c.PodUID}
		s.Cluster.resolveName(&p)
		return p, true
	}
	for _, c := range Contention(s) {
		if plugins.Resource(c.Resource) != v.Resource || c.Device != "" && c.Device != v.Scope {
			continue
		}
		if p, known := MainCulprit(&c); known {
			return p.Party, true
		}
	}
	return snapshot.Party{}, false
}

// noSpeed reports whether a link is not judged because its speed is not known.
func noSpeed(s *snapshot.Snapshot, v *plugins.Verdict) bool {
	if v.Resource != plugins.NetworkIO {
		return false
	}
	for i := range s.NICs {
		if n := &s.NICs[i]; n.Name == v.Scope {
			return n.SpeedBytesPerSecond.IsZero()
		}
	}
	return false
}

// UnjudgedAdvice is about what was not judged.
func UnjudgedAdvice(s *State, u *plugins.Unjudged) Advice {
	for i := range s.Levels.Verdicts {
		v := &s.Levels.Verdicts[i]
		if u.Plugin != "" && v.Plugin == u.Plugin && v.Resource == u.Resource && v.Scope == u.Scope {
			if a, some := AdviceOf(s, v); some {
				return a
			}
		}
	}
	return Advice{"Enable a rule for it in the configuration, or see plimsoll doctor on the node for what cannot be read.", "reading.md#headline-and-verdicts"}
}

// ContentionAdvice is about a contention; false: no workload waits because of others.
func ContentionAdvice(s *State, c *snapshot.Contention) (Advice, bool) {
	const about = "reading.md#disks-and-culprits-and-sufferers"
	switch c.State {
	case snapshot.ContentionBusy:
		return Advice{}, false
	case snapshot.ContentionUnknown:
		if c.Resource == snapshot.SharedNetwork {
			return Advice{"No kernel tells who waits for a link: see the verdict about it.", about}, true
		}
		return Advice{"Let the kernel count what is missing: plimsoll doctor on the node says how.", "troubleshooting.md#by-the-row-of-plimsoll-doctor"}, true
	case snapshot.ContentionPresent:
	}
	p, known := MainCulprit(c)
	if !known {
		return Advice{findOut, about}, true
	}
	return Advice{relieveFrom(s.Cluster, &p.Party, c.Resource), about}, true
}

// CulpritAdvice is about a culprit on several nodes, of a kind and an owner as an agent
// reports them.
func CulpritAdvice(resource, kind, owner string) Advice {
	what := restrain("it", snapshot.SharedResource(resource))
	if !mayRestrain(kind, owner) {
		what = lookAt("it")
	}
	return Advice{what, "reading.md#disks-and-culprits-and-sufferers"}
}

// mayRestrain reports whether the pods of an owner, NAMESPACE/KIND/NAME, may be limited
// or moved. What a heartbeat does not tell, such as priorities, may protect them too.
func mayRestrain(kind, owner string) bool {
	parts := strings.SplitN(owner, "/", 3)
	if kind != string(snapshot.KindPod) || len(parts) != 3 || slices.Contains(pods.DefaultRules().Namespaces, parts[0]) {
		return false
	}
	mover := slices.ContainsFunc(names.MoverKinds(), func(m names.MoverFacts) bool { return string(m.Kind) == parts[1] })
	return !mover && parts[1] != "DaemonSet" && parts[1] != "Node" // a Node owns static pods
}

// findOut is the advice where nothing is known to be the cause.
const findOut = "Find out on the node what uses it: no workload but the one that waits accounts for enough of it."

// lookAt is the advice about what Plimsoll itself would not touch.
func lookAt(who string) string {
	return "See what " + who + " does before you limit or stop it: it may be part of the node, or protected."
}

// relieveFrom is what ends the use by a workload. Only a pod of which the API server
// tells that it is not protected is to be limited or moved.
func relieveFrom(c *Cluster, p *snapshot.Party, r snapshot.SharedResource) string {
	who := Printable(p.Name)
	if p.PodUID != "" && c != nil && c.PodOf != nil {
		if pod, known := c.PodOf(p.PodUID); known && len(pod.Protections) == 0 {
			return restrain(who, r)
		}
	}
	return lookAt(who)
}

func restrain(who string, r snapshot.SharedResource) string {
	switch r {
	case snapshot.SharedMemory:
		return "Lower the memory of " + who + ", set its limit above what it uses, or move it to another node."
	case snapshot.SharedNetwork:
		return "Limit the rate of " + who + ", or move it to another node."
	case snapshot.SharedCPU:
		return "Give " + who + " a CPU limit, or move it to another node."
	case snapshot.SharedDisk:
	}
	return "Limit the IO of " + who + ", or move it to another disk or node."
}

// MainCulprit is that of lease.ResourceContention, of what the agent measures itself.
func MainCulprit(c *snapshot.Contention) (snapshot.Culprit, bool) {
	if coverage, known := c.Coverage.Get(); known && coverage < lease.MinCoverage {
		return snapshot.Culprit{}, false
	}
	s, some := MainSufferer(c)
	for _, p := range c.Culprits {
		if !some || p.Party != s.Party {
			return p, p.Share >= lease.MainShare
		}
	}
	return snapshot.Culprit{}, false
}
