package plugins

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// DiskContention judges each disk: whether a workload waits for it because of
// others, and its await is far above its baseline. Both, because each alone is
// ordinary: a backup at full speed on a disk of its own delays only itself, and a
// service may wait for a disk that is as fast as ever. It has no hard level: a slow
// disk is no reason to evict a pod at once.
type DiskContention struct {
	Enabled         bool          `yaml:"enabled" why:"Whether the rule is on."`
	Await           time.Duration `yaml:"await" why:"The least await (mean time of a request, queue included) that counts as slow on a disk without moving parts."`
	AwaitRotational time.Duration `yaml:"awaitRotational" why:"The same on a disk with moving parts, where a seek alone takes ten milliseconds. A virtual disk often says that it rotates: one whose reads take less than 4 ms is not believed."`
	Factor          int           `yaml:"factor" unit:"times" why:"How many times its baseline the await must be. The baseline is learned per disk, for reads and writes and by request size, and never taken as more than the times above."`
	For             time.Duration `yaml:"for" why:"How long the rule must be met without a break: writeback and image pulls come in bursts."`
	Coverage        float64       `yaml:"coverage" unit:"ratio" why:"No culprit is named unless workloads account for this share of the disk's traffic."`
	ClearFor        time.Duration `yaml:"clearFor" why:"How long the lower threshold must be clear before the level ends (hysteresis); a shorter time lets the taint flap."`
	Ceilings        []DiskCeiling `yaml:"ceilings" unit:"ceilings" why:"Disks that are judged by their throughput against a ceiling instead of their await; they need no baseline. As on other disks the rule is met only while a workload waits because of others."`
}

// DefaultDiskContention has the thresholds of a fresh install.
func DefaultDiskContention() DiskContention {
	return DiskContention{
		Enabled: true, Await: 20 * time.Millisecond, AwaitRotational: 100 * time.Millisecond, Factor: 3,
		For: time.Minute, Coverage: 0.70, ClearFor: 30 * time.Second,
	}
}

// maxFactor is the largest multiple of a baseline.
const maxFactor = 1000

// Validate says which values must not be used.
func (p DiskContention) Validate(at problems.Section) {
	at.Duration("for", p.For, 0, problems.MaxDuration)
	at.Duration("clearFor", p.ClearFor, 0, problems.MaxDuration)
	at.Duration("await", p.Await, time.Microsecond, time.Hour)
	at.Duration("awaitRotational", p.AwaitRotational, time.Microsecond, time.Hour)
	at.Int("factor", p.Factor, 1, maxFactor)
	for i, c := range p.Ceilings {
		in := at.Element("ceilings", i)
		c.validate(in)
		before := slices.ContainsFunc(p.Ceilings[:i], func(o DiskCeiling) bool { return o.Device == c.Device })
		in.Must(!before, problems.Quote(c.Device)+" is named twice", "device")
	}
}

const (
	// diskWindow is the window of await and throughput. With fewer than
	// diskRequests in it there is no await.
	diskWindow   = 10 * time.Second
	diskRequests = 10
	// lowerAwait is the lower threshold (hysteresis), as a share of the threshold.
	lowerAwait = 0.7
)

// Name of the plugin.
func (DiskContention) Name() string { return "disk-contention" }

// Threshold judges every disk of the leaf layer that has served a request.
func (p DiskContention) Threshold(v View) []Verdict {
	w, covered := v.Over(diskWindow)
	var contention []snapshot.Contention // computed when first needed
	who := func(device string) *snapshot.Contention {
		if contention == nil {
			contention = v.ContentionIn(w)
		}
		return find(contention, device)
	}
	var list []Verdict
	for i := range v.Disks {
		d := &v.Disks[i].Disk
		if JudgesDisk(d) {
			list = append(list, p.judge(v, d, w, covered, who))
		}
	}
	return list
}

// JudgesDisk reports whether the rule judges a disk that has served requests.
func JudgesDisk(d *snapshot.Disk) bool { return judged(d) && d.Reads+d.Writes > 0 }

// judged reports whether a disk is judged: stacked devices repeat the IO of those
// below, and RAM disks are no disks.
func judged(d *snapshot.Disk) bool {
	return d.Layer == snapshot.LayerLeaf && d.Kind != "zram" && d.Kind != "ram"
}

func find(list []snapshot.Contention, device string) *snapshot.Contention {
	for i := range list {
		if list[i].Resource == snapshot.SharedDisk && list[i].Device == device {
			return &list[i]
		}
	}
	return &snapshot.Contention{State: snapshot.ContentionBusy}
}

func (p DiskContention) judge(v View, d *snapshot.Disk, w snapshot.Window, covered bool, who func(string) *snapshot.Contention) Verdict {
	out := Verdict{Resource: Disk, Scope: d.Name, Condition: conditionDiskContention, Unit: "seconds", Operator: ">=", Whole: snapshot.Some(1.0)}
	was := v.Was(d.Name)
	out.Latched, out.LowerMet, out.LowerSeen = was.Latched, was.LowerMet, was.LowerSeen
	slow := diskAwait{}
	if ceiling, named := p.ceiling(d.Name); named {
		slow = ceiling.nearest(d, w)
		out.Unit = slow.unit
	} else {
		slow = p.slowest(v, d, w)
	}
	slow.unseen = unseenOnDisk(v, d, w, covered)
	out.Observed, out.Threshold = slow.await, snapshot.Some(slow.threshold)
	out.Evidence = []Evidence{slow.evidence()}
	met, lower, unnamed, doubt := false, maybe{}, "", ""
	out.Absent, out.Reason = slow.unseen, slow.text()
	switch await, ok := slow.await.Get(); {
	case slow.unseen != "":
		lower.may, out.Reason = true, "incomplete data: "+slow.unseen
	case ok && await >= slow.threshold*lowerAwait:
		c := who(d.Name)
		present := c.State == snapshot.ContentionPresent
		// That it is in doubt what a measured stall is due to is no missing value.
		lower = maybe{met: present, may: present || c.Absent["sufferers"] != ""}
		met = lower.met && await >= slow.threshold
		out.Evidence = append(out.Evidence, sufferersEvidence(c))
		doubt = c.Unknown()
		out.Reason, unnamed = contentionText(c)+"; "+out.Reason, p.unnamed(c, slow)
	}
	if c := capacityOf(v.Capacities, d.Name); c != nil && c.Slow != "" {
		out.Reason, unnamed = out.Reason+"; "+c.Slow, cmp.Or(unnamed, c.Slow)
	}
	doubt = cmp.Or(doubt, find(v.Contention, d.Name).Unknown())
	if met {
		out.RuleMetSince = cmp.Or(was.RuleMetSince, v.Monotonic)
	}
	lasted := met && v.Monotonic-out.RuleMetSince >= p.For
	out.applyHysteresis(v, Soft, lasted && !v.WarmingUp, out.stillHeld(v, Soft, lower) && !v.WarmingUp, p.ClearFor)
	out.Partial = v.WarmingUp || v.Monotonic-v.Since < p.For
	p.explain(&out, v, met, lasted, lower.unseen())
	out.Absent = cmp.Or(out.Absent, missing(out.Level, lower.met, doubt, unnamed))
	return out
}

// missing is what is not known of who waits, at no level, which then is no all-clear, and why no
// culprit is named at a level. Where one was seen to wait, a doubt about another hides no culprit.
func missing(level Level, waits bool, doubt, unnamed string) string {
	switch {
	case level == None:
		return doubt
	case waits:
		return unnamed
	}
	return cmp.Or(doubt, unnamed)
}

// unseenOnDisk is why it is not known how fast the disk was in the window; empty: it is, also
// where it had too little to do to have an await. One that completes next to nothing while
// requests are in flight throughout does not answer: how long they take is not known yet. So it
// is where many more are in flight throughout than those that it completes explain (Little's
// law), such as writes that hang while reads are served.
func unseenOnDisk(v View, d *snapshot.Disk, w snapshot.Window, covered bool) string {
	r, ok := w.Disk(d).Get()
	if !ok {
		return "a rate needs two samples"
	}
	reads, _ := r.ReadAwaitSeconds.Get()
	writes, _ := r.WriteAwaitSeconds.Get()
	explained := r.ReadsPerSecond*reads + r.WritesPerSecond*writes
	switch throughout := w.InFlight(d); {
	case !covered:
		return v.unseen(w, diskWindow)
	case (r.ReadsPerSecond+r.WritesPerSecond)*r.WindowSeconds < diskRequests && throughout > 0:
		return fmt.Sprintf("%d requests are in flight, and fewer than %d reads and writes were completed in %s", d.InFlight, diskRequests, diskWindow)
	case float64(throughout) > 2+2*explained:
		return fmt.Sprintf("%d requests or more are in flight throughout, and those that were completed in %s explain %.1f of them: the others get no answer", throughout, diskWindow, explained)
	}
	return ""
}

// explain adds to the reason of a verdict why the level is not what the comparisons say.
func (p DiskContention) explain(out *Verdict, v View, met, lasted, unseen bool) {
	switch {
	case met && v.WarmingUp:
		out.Reason = "warming up, only the hard level is judged: " + out.Reason
	case met && !lasted:
		out.Reason += fmt.Sprintf("; for %s, needs %s", (v.Monotonic - out.RuleMetSince).Round(time.Second), p.For)
	case out.Level > None && !met && unseen:
		out.Reason = staysUnseen + out.Reason
	case out.Level > None && !met:
		out.Reason = "level stays on until clear for " + p.ClearFor.String() + ": " + out.Reason
	}
}

// unnamed is why no culprit is named; empty if one may be.
func (p DiskContention) unnamed(c *snapshot.Contention, slow diskAwait) string {
	coverage, known := c.Coverage.Get()
	switch {
	case !known:
		return c.Absent["coverageRatio"]
	case coverage < p.Coverage:
		return fmt.Sprintf("workloads account for %.0f %% of the traffic; to name a culprit %.0f %% are needed", 100*coverage, 100*p.Coverage)
	case slow.why != "":
		return "the baseline of this disk is " + slow.why
	}
	return ""
}

// diskAwait is the await of one direction of a disk beside its threshold.
type diskAwait struct {
	direction string
	await     snapshot.Opt[float64] // seconds
	baseline  snapshot.Opt[float64]
	threshold float64
	why       string // why there is no baseline
	least     string // why the threshold is not lower, of a disk that says that it rotates
	unseen    string // why it cannot be judged; empty: it can
	// unit of await and threshold if they are of a ceiling; empty: seconds.
	unit string
}

// slowest is the direction that is nearest to its threshold, or furthest beyond it.
func (p DiskContention) slowest(v View, d *snapshot.Disk, w snapshot.Window) diskAwait {
	r, ok := w.Disk(d).Get()
	base := v.Baselines[DiskKey(d, v.BootID())]
	from := p.ThresholdOf(d, base)
	of := func(write bool, name string, perSecond, bytes float64, await snapshot.Opt[float64]) diskAwait {
		s := diskAwait{direction: name, threshold: from.Least.Seconds()}
		if rotational, _ := d.Rotational.Get(); rotational {
			s.least = from.Why
		}
		if !ok || perSecond*r.WindowSeconds < diskRequests {
			return s
		}
		s.await, s.baseline = await, base.await(write, per(bytes, perSecond))
		if usual, learned := s.baseline.Get(); learned {
			s.threshold = p.slowFrom(from.Least, usual).Seconds()
		} else {
			s.why = base.progress(write, per(bytes, perSecond))
		}
		return s
	}
	reads := of(false, "reads", r.ReadsPerSecond, r.ReadBytesPerSecond, r.ReadAwaitSeconds)
	writes := of(true, "writes", r.WritesPerSecond, r.WrittenBytesPerSecond, r.WriteAwaitSeconds)
	if writes.ratio() > reads.ratio() {
		return writes
	}
	return reads
}

func (s diskAwait) ratio() float64 {
	await, _ := s.await.Get()
	return await / s.threshold
}

func (s diskAwait) evidence() Evidence {
	e := Evidence{
		Rule: Soft, What: "await of " + s.direction + " over " + diskWindow.String(),
		Observed: s.await, Operator: ">=", Threshold: s.threshold, Unit: "seconds",
	}
	if s.unit != "" {
		e.What, e.Unit = "throughput over "+diskWindow.String(), s.unit
	}
	if await, ok := s.await.Get(); ok {
		e.Met = await >= s.threshold
	} else {
		e.Absent = cmp.Or(s.unseen, fmt.Sprintf("fewer than %d requests", diskRequests))
	}
	return e
}

func (s diskAwait) text() string {
	if s.unit != "" {
		return s.throughputText()
	}
	await, ok := s.await.Get()
	if !ok {
		return fmt.Sprintf("fewer than %d requests in %s", diskRequests, diskWindow)
	}
	text := fmt.Sprintf("await of %s %.1f ms (needs ≥ %.0f ms", s.direction, 1000*await, 1000*s.threshold)
	if usual, learned := s.baseline.Get(); learned {
		text += fmt.Sprintf("; baseline %.1f ms", 1000*usual)
	}
	if s.least != "" {
		text += "; " + s.least
	}
	return text + ")"
}

// sufferersEvidence is the longest time that a workload waited because of others.
func sufferersEvidence(c *snapshot.Contention) Evidence {
	e := Evidence{
		Rule: Soft, What: "a workload waits because of others", Operator: ">=", Threshold: snapshot.WaitedThreshold, Unit: "ratio",
		Met: c.State == snapshot.ContentionPresent,
	}
	if !e.Met { // that one waits is known, whatever is unknown of others
		e.Absent = c.Unknown()
	}
	if e.Absent == "" {
		e.Observed = snapshot.Some(0.0)
	}
	if i := slices.IndexFunc(c.Sufferers, func(s snapshot.Sufferer) bool { return !s.LowestClass && !s.Share.IsZero() }); i >= 0 && e.Absent == "" {
		e.Observed = snapshot.Some(c.Sufferers[i].Waited)
	}
	return e
}

// contentionText names sufferers and culprits, for people.
func contentionText(c *snapshot.Contention) string {
	switch c.State {
	case snapshot.ContentionUnknown:
		return "unknown whether a workload waits because of others: " + c.Unknown()
	case snapshot.ContentionBusy:
		return "busy, but no workload waits because of others"
	case snapshot.ContentionPresent:
	}
	var parts []string
	for _, s := range c.Sufferers[:min(2, len(c.Sufferers))] {
		if s.Significant(snapshot.WaitedThreshold) {
			parts = append(parts, fmt.Sprintf("%s waits %.0f %% of the time", s.Name, 100*s.Waited))
		}
	}
	for _, u := range c.Culprits[:min(2, len(c.Culprits))] {
		parts = append(parts, fmt.Sprintf("%s accounts for %.0f %% of the traffic", u.Name, 100*u.Share))
	}
	return strings.Join(parts, "; ")
}

// Top names the workloads with the largest shares of the disk's traffic. A sufferer
// is named only if its own share is large: two workloads may be culprits for each
// other.
func (DiskContention) Top(v View, of Verdict, n int) []Candidate {
	w, _ := v.Over(diskWindow)
	c := find(v.ContentionIn(w), of.Scope)
	var list []Candidate
	for _, u := range c.Culprits {
		if u.Share < c.Culprits[0].Share/2 && u.Waits(snapshot.WaitedThreshold) {
			continue
		}
		list = append(list, Candidate{
			Cgroup: u.Cgroup, Name: u.Name, PodUID: u.PodUID, Relief: u.Share, Unit: "ratio",
			Why: fmt.Sprintf("%.0f %% of the traffic on %s", 100*u.Share, of.Scope),
		})
	}
	return list[:min(n, len(list))]
}
