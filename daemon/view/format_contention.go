package view

import (
	"cmp"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// Contention is who hurts whom on each device in use and about memory: first
// where somebody is hurt, then where that is not known, then where nobody is.
// Pods have the names that the API server has for them.
func (s *State) Contention() []probes.Contention {
	list := slices.Clone(s.Snapshot.Contention)
	for i := range list {
		c := &list[i]
		c.Culprits, c.Sufferers = slices.Clone(c.Culprits), slices.Clone(c.Sufferers)
		for j := range c.Culprits {
			s.Cluster.name(&c.Culprits[j].Party)
		}
		for j := range c.Sufferers {
			s.Cluster.name(&c.Sufferers[j].Party)
		}
	}
	slices.SortStableFunc(list, func(a, b probes.Contention) int { return cmp.Compare(concern(&a), concern(&b)) })
	return list
}

func (c *Cluster) name(p *probes.Party) {
	if c == nil || c.PodOf == nil || p.PodUID == "" {
		return
	}
	if pod, known := c.PodOf(p.PodUID); known {
		p.Name = pod.Namespace + "/" + pod.Name
	}
}

func concern(c *probes.Contention) int {
	return slices.Index([]probes.ContentionState{probes.ContentionSuffers, probes.ContentionUnknown, probes.ContentionBusy}, c.State)
}

// ContentionTitle is the resource and its device as a heading: "Disk nvme0n1".
func ContentionTitle(c *probes.Contention) string {
	return Title(plugins.Verdict{Resource: plugins.Resource(c.Resource), Scope: c.Device})
}

// ContentionText is the state of one in a few words.
func ContentionText(c *probes.Contention) string {
	switch {
	case c.State == probes.ContentionSuffers:
		return "contention"
	case c.State != probes.ContentionBusy:
		return "not known who waits"
	case len(c.Sufferers) == 0:
		return "busy, nobody waits"
	case slices.ContainsFunc(c.Sufferers, func(s probes.Sufferer) bool { return !s.Lowest }):
		return "busy, nobody waits for long"
	}
	return "busy, only pods of the lowest class wait"
}

// ContentionSentence says the most of a contention in one sentence, with the
// words of when its window was: "web/db waited 38.0 % of the last 10 s on
// nvme0n1; 71.0 % of the traffic is batch/du; 94.0 % of the traffic is
// accounted for".
func ContentionSentence(c *probes.Contention, when string) string {
	where := " on " + Printable(c.Device)
	if c.Resource == probes.SharedMemory {
		where = " for memory"
	}
	text := "nobody waited" + where
	switch s, some := Sufferer(c); {
	case some:
		text = Printable(s.Name) + " waited " + Ratio(s.Waited) + " of " + when + where
	case c.State != probes.ContentionBusy:
		text = "nobody knows who waited" + where
	}
	return text + "; " + UseText(c)
}

// UseText is the part of the sentence on who uses it.
func UseText(c *probes.Contention) string {
	traffic := "the traffic"
	if c.Resource == probes.SharedMemory {
		traffic = "what was taken"
	}
	text := "no workload is seen to use it"
	if len(c.Culprits) > 0 {
		text = culpritText(c, traffic)
	}
	return text + "; " + coverageText(c, traffic)
}

// culpritText names who uses it most beside the one who waits.
func culpritText(c *probes.Contention, traffic string) string {
	first := c.Culprits[0]
	s, _ := Sufferer(c)
	if s.Party != first.Party {
		return Ratio(first.Share) + " of " + traffic + " is " + Printable(first.Name)
	}
	text := Ratio(first.Share) + " of " + traffic + " is its own"
	if len(c.Culprits) > 1 {
		text += ", " + Ratio(c.Culprits[1].Share) + " is " + Printable(c.Culprits[1].Name)
	}
	return text
}

// Sufferer is who waits most among those for whom something is done, or else
// among all; false where nobody waits.
func Sufferer(c *probes.Contention) (probes.Sufferer, bool) {
	if len(c.Sufferers) == 0 {
		return probes.Sufferer{}, false
	}
	i := slices.IndexFunc(c.Sufferers, func(s probes.Sufferer) bool { return !s.Lowest })
	return c.Sufferers[max(0, i)], true
}

// CulpritsText is who uses it, in one line: "66.0 % batch/du (380 MB/s), 6.0 %
// web/db (34.6 MB/s), and 13 more".
func CulpritsText(c *probes.Contention) string {
	list := make([]string, 0, len(c.Culprits)+1)
	for _, p := range c.Culprits {
		list = append(list, Ratio(p.Share)+" "+Printable(p.Name)+" ("+ByteRate(p.BytesPerSecond)+")")
	}
	return listed(list, c.MoreCulprits, "no workload is seen to use it")
}

// SufferersText is who waits for it, in one line.
func SufferersText(c *probes.Contention) string {
	list := make([]string, 0, len(c.Sufferers)+1)
	for _, p := range c.Sufferers {
		text := Ratio(p.Waited) + " " + Printable(p.Name)
		if p.Lowest {
			text += " (lowest class)"
		}
		list = append(list, text)
	}
	nobody := "nobody"
	if c.State == probes.ContentionUnknown {
		nobody = "not known: " + Reason(c.Absent, "sufferers")
	}
	return listed(list, c.MoreSufferers, nobody)
}

func listed(list []string, more int, none string) string {
	if len(list) == 0 {
		return none
	}
	if more > 0 {
		list = append(list, "and "+Count(uint64(more))+" more")
	}
	return strings.Join(list, ", ")
}

func coverageText(c *probes.Contention, traffic string) string {
	r, known := c.Coverage.Get()
	switch {
	case !known:
		return "how much of " + traffic + " is accounted for is not known: " + Reason(c.Absent, "coverageRatio")
	case r < plugins.DefaultDiskContention().Coverage && c.State != probes.ContentionBusy:
		return "only " + Ratio(r) + " of " + traffic + " is accounted for: too little to blame anybody"
	}
	return Ratio(r) + " of " + traffic + " is accounted for"
}

// Waits is how much of the time the one who matters waits: what orders
// contentions where there is no room for all.
func Waits(c probes.Contention) float64 {
	s, _ := Sufferer(&c)
	if c.State == probes.ContentionSuffers {
		return 1 + s.Waited
	}
	return s.Waited
}
