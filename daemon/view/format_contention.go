package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Contention of each device in use and of memory, with the pods' names from the
// API server. Contention comes first, then unknown, then busy.
func Contention(s *State) []snapshot.Contention {
	list := slices.Clone(s.Snapshot.Contention)
	for i := range list {
		c := &list[i]
		c.Culprits, c.Sufferers = slices.Clone(c.Culprits), slices.Clone(c.Sufferers)
		for j := range c.Culprits {
			s.Cluster.resolveName(&c.Culprits[j].Party)
		}
		for j := range c.Sufferers {
			s.Cluster.resolveName(&c.Sufferers[j].Party)
		}
	}
	slices.SortStableFunc(list, func(a, b snapshot.Contention) int { return cmp.Compare(severity(&a), severity(&b)) })
	return list
}

func (c *Cluster) resolveName(p *snapshot.Party) {
	if c == nil || c.PodOf == nil || p.PodUID == "" {
		return
	}
	if pod, known := c.PodOf(p.PodUID); known {
		p.Name = pod.Namespace + "/" + pod.Name
	}
}

func severity(c *snapshot.Contention) int {
	return slices.Index([]snapshot.ContentionState{snapshot.ContentionPresent, snapshot.ContentionUnknown, snapshot.ContentionBusy}, c.State)
}

// ContentionTitle is the resource and its device as a heading: "Disk nvme0n1".
func ContentionTitle(c *snapshot.Contention) string {
	return Title(plugins.Verdict{Resource: plugins.Resource(c.Resource), Scope: c.Device})
}

// ContentionText is the state of a contention in a few words.
func ContentionText(c *snapshot.Contention) string {
	switch {
	case c.State == snapshot.ContentionPresent:
		return "contention"
	case c.State != snapshot.ContentionBusy && len(c.Sufferers) > 0:
		return "waits, contention unknown"
	case c.State != snapshot.ContentionBusy:
		return "sufferers unknown"
	case len(c.Sufferers) == 0:
		return "busy, no contention"
	case slices.ContainsFunc(c.Sufferers, func(s snapshot.Sufferer) bool { return !s.LowestClass }):
		return "busy, short waits only"
	}
	return "busy, only the lowest class waits"
}

// ContentionSentence is the main sufferer, the main culprit and the coverage in
// one sentence. when names the window: "web/db waited on nvme0n1 for 38.0 % of
// the last 10 s; batch/du accounts for 71.0 % of the traffic; coverage 94.0 %".
func ContentionSentence(c *snapshot.Contention, when string) string {
	waited, of := "waited on "+Printable(c.Device), "on "+Printable(c.Device)
	switch c.Resource {
	case snapshot.SharedMemory:
		waited, of = "stalled on memory", "of memory pressure"
	case snapshot.SharedCPU:
		waited, of = "waited for a CPU", "for the CPUs"
	case snapshot.SharedDisk, snapshot.SharedNetwork: // on the device
	}
	text := "no workload " + waited
	switch s, some := MainSufferer(c); {
	case some:
		text = Printable(s.Name) + " " + waited + " for " + Ratio(s.Waited) + " of " + when
		if s.Share.IsZero() {
			text += ", for others or for itself"
		}
	case c.State != snapshot.ContentionBusy:
		text = "sufferers " + of + " unknown"
	}
	return text + "; " + UsageText(c)
}

// UsageText is the part of ContentionSentence about culprit and coverage.
func UsageText(c *snapshot.Contention) string {
	traffic := "the traffic"
	switch c.Resource {
	case snapshot.SharedMemory:
		traffic = "memory growth"
		if c.Coverage.IsZero() { // of the node there was none
			traffic = "the memory that workloads took"
		}
	case snapshot.SharedCPU:
		traffic = "the CPU time in use"
	case snapshot.SharedDisk, snapshot.SharedNetwork:
	}
	text := NoCulprit(c)
	switch why := c.Absent["culprits"]; {
	case len(c.Culprits) > 0:
		text = culpritText(c, traffic)
	case why != "" && c.Coverage.IsZero() && why == c.Absent["coverageRatio"]:
		return "culprits and coverage unknown: " + Printable(why)
	}
	return text + "; " + coverageText(c)
}

// culpritText names the largest culprit other than the main sufferer.
func culpritText(c *snapshot.Contention, traffic string) string {
	first := c.Culprits[0]
	s, _ := MainSufferer(c)
	if s.Party != first.Party {
		return Printable(first.Name) + " accounts for " + Ratio(first.Share) + " of " + traffic
	}
	text := "it accounts for " + Ratio(first.Share) + " of " + traffic + " itself"
	if len(c.Culprits) > 1 {
		text += ", " + Printable(c.Culprits[1].Name) + " for " + Ratio(c.Culprits[1].Share)
	}
	return text
}

// MainSufferer is the workload that waits most, of the lowest class only if no other
// waits; false if none waits.
func MainSufferer(c *snapshot.Contention) (snapshot.Sufferer, bool) {
	if len(c.Sufferers) == 0 {
		return snapshot.Sufferer{}, false
	}
	i := slices.IndexFunc(c.Sufferers, func(s snapshot.Sufferer) bool { return !s.LowestClass })
	return c.Sufferers[max(0, i)], true
}

// CulpritsText is the culprits in one line: "66.0 % batch/du (380 MB/s), 6.0 %
// web/db (34.6 MB/s), and 13 more".
func CulpritsText(c *snapshot.Contention) string {
	list := make([]string, 0, len(c.Culprits)+1)
	for _, p := range c.Culprits {
		list = append(list, Ratio(p.Share)+" "+Printable(p.Name)+" ("+Usage(c, &p)+")")
	}
	return joinMore(list, c.MoreCulprits, NoCulprit(c))
}

// NoCulprit is shown instead of culprits where there are none.
func NoCulprit(c *snapshot.Contention) string {
	if why := c.Absent["culprits"]; why != "" {
		return "culprits unknown: " + Printable(why)
	}
	return "no workload found using it"
}

// Usage is what a culprit uses: bytes per second, or CPUs.
func Usage(c *snapshot.Contention, p *snapshot.Culprit) string {
	if c.Resource == snapshot.SharedCPU {
		return Number(p.Cores) + " CPUs"
	}
	return ByteRate(p.BytesPerSecond)
}

// OwnShare is the share of the traffic that is the sufferer's own.
func OwnShare(s *snapshot.Sufferer) string {
	return Optional(s.Share, Ratio)
}

// Lasting is for how long a sufferer has been waiting: "22 s"; empty where it is not
// known.
func Lasting(s *snapshot.Sufferer) string {
	seconds, known := s.LastingSeconds.Get()
	if !known {
		return ""
	}
	return Age(time.Duration(seconds * float64(time.Second)))
}

// SufferersText is the sufferers in one line.
func SufferersText(c *snapshot.Contention) string {
	list := make([]string, 0, len(c.Sufferers)+1)
	for _, p := range c.Sufferers {
		text := Ratio(p.Waited) + " " + Printable(p.Name)
		if p.LowestClass {
			text += " (lowest class)"
		}
		list = append(list, text)
	}
	none := "none"
	if c.State == snapshot.ContentionUnknown {
		none = "unknown: " + Printable(c.Unknown())
	}
	return joinMore(list, c.MoreSufferers, none)
}

func joinMore(list []string, more int, none string) string {
	if len(list) == 0 {
		return none
	}
	if more > 0 {
		list = append(list, "and "+Count(uint64(more))+" more")
	}
	return strings.Join(list, ", ")
}

func coverageText(c *snapshot.Contention) string {
	r, known := c.Coverage.Get()
	if !known {
		return "coverage unknown: " + AbsentReason(c.Absent, "coverageRatio")
	}
	return "coverage " + Ratio(r)
}

// WaitedShare is the share of the window that the main sufferer waits. It orders
// contentions where not all can be shown.
func WaitedShare(c snapshot.Contention) float64 {
	s, _ := MainSufferer(&c)
	if c.State == snapshot.ContentionPresent {
		return 1 + s.Waited
	}
	return s.Waited
}
