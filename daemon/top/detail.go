package top

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// detail is all about one row of a list. What no longer exists has one line.
func (k list) detail(s *view.State, id string) []line {
	d := &detail{state: s}
	switch k {
	case workloadList:
		one(s.Snapshot.Workloads, func(w *snapshot.WorkloadState) bool { return w.Cgroup == id }, d.workload)
	case diskList:
		one(s.Snapshot.Disks, func(x *snapshot.DiskState) bool { return x.Name == id }, d.disk)
	case nicList:
		one(s.Snapshot.NICs, func(x *snapshot.NICState) bool { return x.Name == id }, d.nic)
	case filesystemList:
		one(s.Snapshot.Filesystems, func(x *snapshot.Filesystem) bool { return x.Mountpoint == id }, d.filesystem)
	case verdictList:
		one(s.Levels.Verdicts, func(v *plugins.Verdict) bool { return verdictID(*v) == id }, d.verdictAlone)
	case noteList, lists:
		one(noteTable(s).rows, func(r *row) bool { return r.id == id }, func(r *row) { d.add(r.cells[0].text) })
	}
	if len(d.lines) == 0 {
		d.title(id)
		d.add("No longer there: it is not in the newest sample.")
	}
	return d.lines
}

func one[T any](list []T, is func(*T) bool, show func(*T)) {
	for i := range list {
		if is(&list[i]) {
			show(&list[i])
			return
		}
	}
}

// detail collects the lines about one thing.
type detail struct {
	state *view.State
	lines []line
}

func (d *detail) title(text string) { d.lines = append(d.lines, line{{text, bold}}) }

// section begins after an empty line.
func (d *detail) section(text string) {
	d.lines = append(d.lines, line{}, line{{text, dim}})
}

func (d *detail) add(text string) { d.lines = append(d.lines, line{{"  " + text, plain}}) }

// fact is a name and what is known about it.
func (d *detail) fact(name, text string) {
	d.lines = append(d.lines, line{{"  " + fit(name, 11, false) + " ", dim}, {text, plain}})
}

func (d *detail) workload(w *snapshot.WorkloadState) {
	d.title(d.state.WorkloadName(w))
	d.fact("kind", string(w.Kind))
	d.fact("cgroup", w.Cgroup)
	if w.PodUID != "" {
		d.fact("pod", w.PodUID)
	}
	if p := w.Pod; p != nil && p.QoS != "" {
		d.fact("QoS", p.QoS+", priority "+strconv.Itoa(int(p.Priority)))
	}
	if view.AtOwnLimit(w) {
		d.lines = append(d.lines, line{{"  " + view.OwnLimitText, yellow}})
	}
	if len(w.Throttled) > 0 {
		of := make([]string, len(w.Throttled))
		for i, r := range w.Throttled {
			of[i] = string(r)
		}
		d.lines = append(d.lines, line{{"  throttled by Plimsoll (" + strings.Join(of, ", ") + "): its stall may be the throttle's effect", yellow}})
	}
	d.workloadUses(w)
	d.workloadWaits(w)
	d.asCulprit(w)
	d.levels(func(v *plugins.Verdict) bool { return d.concerns(v, w) })
	d.absent(w.Absent, w.Pressure.Absent)
}

func (d *detail) workloadUses(w *snapshot.WorkloadState) {
	d.section("USES")
	r, _ := w.Rates.Get() // each part is absent without rates
	cpu := view.Optional(r.CPUCores, view.Number) + " CPUs"
	if held, ok := r.ThrottledRatio.Get(); ok && held > 0 {
		cpu += ", held back by its own quota " + view.Ratio(held) + " of the time"
	}
	d.fact("cpu", cpu)
	d.fact("memory", "working set "+view.Optional(w.WorkingSetBytes, size)+" · RSS "+view.Optional(w.RSSBytes, size)+" · swap "+view.Optional(w.SwapBytes, size)+
		" · limit "+view.Optional(w.MemoryLimitBytes, size)+", hit "+view.Optional(r.LimitHits, view.Count)+" times")
	for _, io := range r.IO {
		if io.ReadsPerSecond+io.WritesPerSecond == 0 {
			continue
		}
		d.fact("disk", d.diskOf(io.Number)+" reads "+view.ByteRate(io.ReadBytesPerSecond)+" in "+perSecond(io.ReadsPerSecond)+
			" · writes "+view.ByteRate(io.WrittenBytesPerSecond)+" in "+perSecond(io.WritesPerSecond))
	}
	if n, ok := r.Network.Get(); ok {
		d.fact("network", "receives "+view.BitRate(n.ReceiveBytesPerSecond)+" · transmits "+view.BitRate(n.TransmitBytesPerSecond))
	}
}

// diskOf is the name of the disk with that number.
func (d *detail) diskOf(number string) string {
	for i := range d.state.Snapshot.Disks {
		if x := &d.state.Snapshot.Disks[i]; x.Number == number {
			return x.Name
		}
	}
	return number
}

func (d *detail) workloadWaits(w *snapshot.WorkloadState) {
	d.section("WAITS")
	r, _ := w.Rates.Get()
	stall := func(s snapshot.StallRatio) string {
		return "some " + view.Optional(s.Some, view.Ratio) + " · full " + view.Optional(s.Full, view.Ratio)
	}
	d.fact("cpu", stall(r.Pressure.CPU))
	d.fact("memory", stall(r.Pressure.Memory))
	d.fact("io", stall(r.Pressure.IO))
	for _, c := range view.Contention(d.state) {
		for _, p := range c.Sufferers {
			if p.Cgroup == w.Cgroup {
				d.add(view.ContentionTitle(&c) + ": " + view.ContentionText(&c) + "; it waits " + view.Ratio(p.Waited) + " of the time" + d.window())
				d.culprits(&c)
			}
		}
	}
}

func (d *detail) window() string {
	if w := d.state.Snapshot.WindowSeconds; w > 0 {
		return " (last " + view.Seconds(w) + ")"
	}
	return ""
}

// asCulprit shows what a workload uses most, and which others wait there. That they wait
// because of it is said of the main culprit of a contention alone.
func (d *detail) asCulprit(w *snapshot.WorkloadState) {
	d.section("AS CULPRIT: WHAT IT USES MOST, AND WHICH WORKLOADS WAIT THERE")
	before := len(d.lines)
	for _, c := range view.Contention(d.state) {
		for _, p := range c.Culprits {
			if p.Cgroup != w.Cgroup {
				continue
			}
			text := view.ContentionTitle(&c) + ": " + view.ContentionText(&c) + "; its share is " + view.Ratio(p.Share) + " (" + view.Usage(&c, &p) + ")"
			if main, some := view.MainCulprit(&c); some && main.Cgroup == w.Cgroup && c.State == snapshot.ContentionPresent {
				text += "; others wait because of it"
			}
			d.add(text)
			c.Sufferers = slices.DeleteFunc(slices.Clone(c.Sufferers), func(s snapshot.Sufferer) bool { return s.Cgroup == w.Cgroup })
			d.sufferers(&c)
		}
	}
	if len(d.lines) == before {
		d.add("It is not among the ten largest culprits of any resource in use.")
	}
}

// concerns reports that a verdict is about the workload or names it, or is about a
// resource whose contention has it as a culprit or a sufferer.
func (d *detail) concerns(v *plugins.Verdict, w *snapshot.WorkloadState) bool {
	if v.Scope == w.Cgroup || w.PodUID != "" && v.Scope == w.PodUID ||
		slices.ContainsFunc(v.Candidates, func(c plugins.Candidate) bool { return c.Cgroup == w.Cgroup }) {
		return true
	}
	return slices.ContainsFunc(d.state.Snapshot.Contention, func(c snapshot.Contention) bool {
		return string(c.Resource) == string(v.Resource) && (c.Device == "" || c.Device == v.Scope) &&
			(slices.ContainsFunc(c.Culprits, func(p snapshot.Culprit) bool { return p.Cgroup == w.Cgroup }) ||
				slices.ContainsFunc(c.Sufferers, func(p snapshot.Sufferer) bool { return p.Cgroup == w.Cgroup }))
	})
}

func (d *detail) disk(x *snapshot.DiskState) {
	d.title(device(x.Name, view.DiskKind(&x.Disk)))
	d.fact("size", view.Optional(x.SizeBytes, func(n uint64) string { return view.Size(float64(n)) }))
	for _, k := range d.state.Knees(x.Name) {
		d.fact("carries", k.Text+" "+k.Direction+", "+k.How)
	}
	d.cellsOf(diskTable([]snapshot.DiskState{*x}, 1))
	d.contention(snapshot.SharedDisk, x.Name)
	d.levels(func(v *plugins.Verdict) bool { return v.Resource == plugins.Disk && v.Scope == x.Name })
	d.absent(x.Absent)
}

func (d *detail) nic(x *snapshot.NICState) {
	d.title(device(x.Name, view.NICKind(&x.NIC)))
	d.cellsOf(nicTable([]snapshot.NICState{*x}, 1))
	if x.Layer == snapshot.LayerLeaf { // what is counted of workloads is the traffic of these alone
		d.contention(snapshot.SharedNetwork, x.Name)
	}
	d.levels(func(v *plugins.Verdict) bool { return v.Resource == plugins.NetworkIO && v.Scope == x.Name })
	d.absent(x.Absent)
}

func (d *detail) filesystem(x *snapshot.Filesystem) {
	d.title(x.Mountpoint + " " + view.FilesystemKind(*x))
	d.fact("device", cmp.Or(x.Device, view.Unknown))
	d.cellsOf(filesystemTable(d.state.Snapshot, []snapshot.Filesystem{*x}, 1))
	d.levels(func(v *plugins.Verdict) bool { return v.Resource == plugins.Filesystem && v.Scope == x.Mountpoint })
	d.absent(x.Absent)
}

// cellsOf are the columns of a table's only row, one below the other.
func (d *detail) cellsOf(t table) {
	d.section("USE")
	for i, c := range t.rows[0].cells[1:] {
		d.lines = append(d.lines, line{{"  " + fit(t.head[i+1], 11, false) + " ", dim}, c.span})
	}
}

// contention of a device; several links are shown together, without a name.
func (d *detail) contention(resource snapshot.SharedResource, name string) {
	for _, c := range view.Contention(d.state) {
		if c.Resource != resource || c.Device != name && c.Device != "" {
			continue
		}
		of := ""
		if c.Resource == snapshot.SharedNetwork && c.Device == "" {
			of = " of all links together"
		}
		d.section("CONTENTION" + of + d.window())
		d.lines = append(d.lines, line{{"  " + view.ContentionText(&c), contentionStyle(c.State)}, {"; " + view.UsageText(&c), plain}})
		if why := c.Unknown(); why != "" {
			d.add("unknown: " + why)
		}
		d.culprits(&c)
		d.sufferers(&c)
	}
}

func (d *detail) culprits(c *snapshot.Contention) {
	if len(c.Culprits) == 0 {
		return
	}
	d.lines = append(d.lines, line{{"  culprits: share, use, name", dim}})
	for _, p := range c.Culprits {
		d.party(fit(view.Ratio(p.Share), 6, true)+"  "+fit(view.Usage(c, &p), 9, true)+"  ", p.Name, "")
	}
	d.more(c.MoreCulprits)
}

func (d *detail) sufferers(c *snapshot.Contention) {
	if len(c.Sufferers) == 0 {
		return
	}
	d.lines = append(d.lines, line{{"  sufferers: time waited, own share, name", dim}})
	for _, p := range c.Sufferers {
		class := ""
		if p.LowestClass {
			class = " (lowest class)"
		}
		d.party(fit(view.Ratio(p.Waited), 6, true)+"  "+fit(view.OwnShare(&p), 9, true)+"  ", p.Name, class)
	}
	d.more(c.MoreSufferers)
}

// party is a line that ends with a name, so that a long one wraps.
func (d *detail) party(numbers, name, class string) {
	d.lines = append(d.lines, line{{"  " + numbers, plain}, {name, bold}, {class, plain}})
}

func (d *detail) more(n int) {
	if n > 0 {
		d.add("and " + view.Count(uint64(n)) + " more")
	}
}

// levels are the verdicts that concern it.
func (d *detail) levels(concerns func(*plugins.Verdict) bool) {
	d.section("LEVELS")
	before := len(d.lines)
	for i := range d.state.Levels.Verdicts {
		if v := &d.state.Levels.Verdicts[i]; concerns(v) {
			d.verdict(v)
		}
	}
	if len(d.lines) == before {
		d.add("No verdict is about it.")
	}
}

func (d *detail) verdict(v *plugins.Verdict) {
	d.lines = append(d.lines, line{
		{"  " + pluginName(*v), bold},
		{" ", plain},
		{view.LevelText(*v), verdictStyle(*v)},
		{" for " + view.Age(d.state.Age(v.Since)), plain},
	})
	d.add("  " + v.Reason)
	if v.Absent != "" {
		d.add("  missing: " + v.Absent)
	}
	for _, e := range v.Evidence {
		d.add("  " + evidenceText(&e))
	}
	for _, c := range v.Candidates {
		d.add("  candidate: " + c.Name + ", " + c.Why)
	}
}

func evidenceText(e *plugins.Evidence) string {
	quantity := func(x float64) string { return view.Quantity(x, e.Unit) }
	met := "not met"
	switch {
	case e.Met:
		met = "met"
	case e.Observed.IsZero():
		met = "unknown"
	}
	text := e.Rule.String() + ": " + e.What + " " + view.Optional(e.Observed, quantity) + ", " + e.Operator + " " + quantity(e.Threshold) + ": " + met
	if e.Absent != "" {
		text += " (" + e.Absent + ")"
	}
	return text
}

func (d *detail) verdictAlone(v *plugins.Verdict) {
	d.title(view.Title(*v))
	d.levels(func(x *plugins.Verdict) bool { return x == v })
	name := v.Scope
	if name == "node" {
		name = ""
	}
	d.contention(snapshot.SharedResource(v.Resource), name)
}

// absent is what is not measured of it, with the reasons.
func (d *detail) absent(of ...snapshot.Absent) {
	var lines []string
	for _, absent := range of {
		for _, what := range slices.Sorted(maps.Keys(absent)) {
			lines = append(lines, what+": "+absent[what])
		}
	}
	if len(lines) == 0 {
		return
	}
	d.section("NOT MEASURED")
	for _, l := range lines {
		d.add(l)
	}
}
