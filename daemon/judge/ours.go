package judge

import (
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/replay"
	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// ours is the agent's chain of a sample, warm, with what it would have learned of the
// disks; the last snapshot and levels stay to be looked at.
type ours struct {
	history  snapshot.History
	set      *plugins.Set
	snapshot *snapshot.Snapshot
	levels   *plugins.Levels
}

const ourName = "Plimsoll"

// Plimsoll is our own rules with a configuration, as of an agent that has been running
// for long on a node that has, so that no warm-up hides a false level.
func Plimsoll(c *config.Agent) judgement.Rule {
	return judgement.Rule{
		Name:      ourName,
		Source:    "the agent's own rules",
		Resources: []plugins.Resource{plugins.Memory, plugins.Disk, plugins.NetworkIO, plugins.CPU, plugins.Filesystem}, Highest: plugins.Hard,
		New: func(l judgement.Label, list []*snapshot.Sample) judgement.Judge { return newOurs(c, l, list) },
	}
}

// Judged is the configuration with all rules that a recording can show: two are off by
// default, since few nodes have what they are about.
func Judged(c *config.Agent) *config.Agent {
	all := *c
	all.Plugins.NUMAMemory.Enabled = true
	all.Plugins.RootfsOveruse.Enabled = true
	return &all
}

func newOurs(of *config.Agent, l judgement.Label, list []*snapshot.Sample) *ours {
	c := *of
	c.Plugins.WarmUp = 0
	c.Tick = replay.Tick(list, of)
	o := &ours{
		history: snapshot.History{Window: c.Window, Keep: c.History, MaxGap: c.MaxGap()},
		set:     plugins.NewSet(c.Plugins.Inner, learned(l, list[0])),
	}
	o.set.SkipWarmUp()
	return o
}

// learned is what an agent that had watched the disks for a day would know.
func learned(l judgement.Label, first *snapshot.Sample) plugins.Baselines {
	b := plugins.Baselines{}
	for i := range first.Disks {
		d := &first.Disks[i]
		await, told := l.Usual[d.Name]
		if !told {
			continue
		}
		u := plugins.RequestStats{Requests: 1e6, Seconds: 24 * 3600, TotalSeconds: 1e6 * await.Seconds()}
		of := plugins.Baseline{Device: d.Name, Seen: first.Time}
		for class := range of.Read {
			of.Read[class], of.Write[class] = u, u
		}
		b[plugins.DiskKey(d, first.BootID)] = of
	}
	return b
}

// Judge lacks what the rules of memory, disks and CPUs need of the node: without it a silent
// judge would look like one that found nothing. Devices that are not measured are told one
// by one.
func (o *ours) Judge(s *snapshot.Sample) (list []judgement.Answer, lacks string) {
	o.snapshot = o.history.Add(s)
	o.levels = o.set.Judge(o.snapshot)
	if s.Pressure.Memory.Full.IsZero() {
		return nil, "full of /proc/pressure/memory"
	}
	if s.Memory.AvailableBytes.IsZero() {
		return nil, "MemAvailable of /proc/meminfo"
	}
	if s.Pressure.IO.Full.IsZero() {
		return nil, "full of /proc/pressure/io"
	}
	if s.Pressure.CPU.Some.IsZero() {
		return nil, "some of /proc/pressure/cpu"
	}
	for i := range o.levels.Verdicts {
		v := &o.levels.Verdicts[i]
		if v.Level == plugins.None {
			continue
		}
		a := judgement.Answer{Alarm: judgement.Alarm{Resource: v.Resource, Level: v.Level}}
		if v.Scope != "node" {
			a.Scope = v.Scope
		}
		if v.MetLevel > plugins.None { // no pod is evicted for pressure that has ended
			for _, c := range v.Candidates {
				a.Named = append(a.Named, c.Cgroup+" "+c.PodUID+" "+c.Name)
			}
		}
		a.Shown = o.shown(a.Alarm)
		list = append(list, a)
	}
	return list, ""
}

// shown are the culprits of the contention that is shown for a level.
func (o *ours) shown(a judgement.Alarm) (names []string) {
	for _, c := range o.snapshot.Contention {
		if string(c.Resource) != string(a.Resource) || c.Device != a.Scope || c.State != snapshot.ContentionPresent {
			continue
		}
		for _, culprit := range c.Culprits {
			names = append(names, culprit.Cgroup+" "+culprit.PodUID+" "+culprit.Name)
		}
	}
	return names
}
