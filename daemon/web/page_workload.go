package web

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll/daemon/history"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// workloadPage is one workload: what it uses, what it waits for, who waits for it, and
// what is judged and decided about it.
type workloadPage struct {
	pageFrame
	Name, Kind, Cgroup, PodUID string
	ID                         string // the cgroup as it is
	Summary, Class             string
	OwnLimit                   string
	Uses                       []fact
	IO                         []ioRow
	NoIO                       string
	Waits                      []gaugeRow
	Culprit, Sufferer          []roleRow
	Levels                     []levelRow
	Limits                     []fact
	Throttled                  []string
	Protections                []string
	Decisions                  []pageDecision
	Processes                  *pageProcesses
	Past                       *pagePast // nil: no history is served
}

// ioRow is a workload's IO on one disk.
type ioRow struct {
	ID, Name                     string
	Reads, Writes, Read, Written cell
}

// gaugeRow is a share from 0 to 100 %; More is worse.
type gaugeRow struct {
	Name string
	cell
	Bar  int // 0 to barWidth; absent values have none
	None bool
	Full string // what 100 % means
}

// roleRow is a workload as culprit or as sufferer of one resource: its own share, and
// those on the other side.
type roleRow struct {
	Device, Title, State, Class string
	Share                       string
	Label                       string // of the bar
	For                         string
	Bar                         int
	Full                        string
	Main                        bool // the main culprit
	ForOthers                   bool // a sufferer that waits because of others, long enough to count
	Others                      []partyRow
	More                        int
	NoOthers                    string
}

// levelRow is a rule that names the workload.
type levelRow struct{ Title, Device, Level, State, For, Relief, Why string }

// workloadHandler is GET /workload?name=CGROUP, or a display name.
type workloadHandler struct {
	*pages
	turns     *turns
	processes processReader // Server.Processes
}

func (p *workloadHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rng, err := history.ParseRange(r.URL.Query(), p.now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name := r.URL.Query().Get("name")
	s := p.state()
	if s == nil || len(name) > maxName {
		p.notFound(w, s, "workload", name)
		return
	}
	found := s.FindWorkloads(name)
	switch len(found) {
	case 0:
		p.ended(w, r, s, name)
		return
	case 1:
	default:
		rows, _ := workloadResults(s, found)
		p.write(w, "page_none.html", notFound{pageFrame: p.frame(s, "Several workloads"), Name: view.Clip(name), Several: true, Workloads: rows}, http.StatusOK)
		return
	}
	d := newWorkloadPage(s, found[0])
	d.pageFrame = p.frame(s, d.Name)
	d.Again = "workload?name=" + url.QueryEscape(d.ID)
	d.Decisions = latestDecisions(view.DecisionsAbout(p.decisions(), found[0].Cgroup, s.WorkloadName(found[0])), s)
	d.Past = newPagePast(p.pages, rng, d.Again, p.past.Workload(d.ID, rng))
	d.Processes = p.turns.read(r.Context(), p.processes, found[0].Cgroup)
	p.write(w, "page_workload.html", d, http.StatusOK)
}

func newWorkloadPage(s *view.State, w *snapshot.WorkloadState) workloadPage {
	row := newWorkload(s, w)
	d := workloadPage{
		Name: row.Name, Kind: row.Kind, Cgroup: row.Where, ID: w.Cgroup, PodUID: view.Printable(w.PodUID), OwnLimit: row.OwnLimit,
		Uses: workloadUses(s, w, row), Waits: workloadWaits(s, w), Levels: workloadLevels(s, w), Limits: workloadLimits(w, row),
	}
	d.IO, d.NoIO = workloadIO(s, w)
	for _, c := range view.Contention(s) {
		d.addRoles(s, &c, w)
	}
	slices.SortStableFunc(d.Culprit, mainFirst)
	slices.SortStableFunc(d.Sufferer, mainFirst)
	d.Summary, d.Class = workloadSummary(&d), workloadClass(&d)
	d.Uses, d.Limits = explained(d.Uses), explained(d.Limits)
	if c := s.Cluster; c != nil {
		d.addCluster(c, w)
	}
	return d
}

// addRoles adds the parts of a contention in which the workload is.
func (d *workloadPage) addRoles(s *view.State, c *snapshot.Contention, w *snapshot.WorkloadState) {
	row := newContentionRow(s, c, "", false)
	role := roleRow{Device: row.Device, Title: row.Title, State: row.State, Class: row.Class}
	if i := slices.IndexFunc(c.Culprits, func(p snapshot.Culprit) bool { return p.Cgroup == w.Cgroup }); i >= 0 {
		r, own := role, culpritRow(c, &c.Culprits[i])
		r.Label, r.Share, r.Bar, r.Full, r.More, r.NoOthers = "its share", own.Share+" "+row.Of+" ("+own.Details+")", own.Bar, "100 % = all "+row.Of, c.MoreSufferers, row.None
		for j := range c.Sufferers {
			if c.Sufferers[j].Cgroup != w.Cgroup {
				r.Others = append(r.Others, suffererRow(&c.Sufferers[j]))
			}
		}
		main, some := view.MainCulprit(c)
		r.Main = some && main.Cgroup == w.Cgroup
		d.Culprit = append(d.Culprit, r.cut())
	}
	if i := slices.IndexFunc(c.Sufferers, func(p snapshot.Sufferer) bool { return p.Cgroup == w.Cgroup }); i >= 0 {
		r, own := role, suffererRow(&c.Sufferers[i])
		r.Label, r.Share, r.Bar, r.For, r.Full, r.More, r.NoOthers = "time waited", own.Share+" of the time ("+own.Details+")", own.Bar, own.For, "100 % = all of the time", c.MoreCulprits, noOther(c)
		r.ForOthers = c.Sufferers[i].Significant(c.Resource.WaitedThreshold())
		for j := range c.Culprits {
			if c.Culprits[j].Cgroup != w.Cgroup {
				r.Others = append(r.Others, culpritRow(c, &c.Culprits[j]))
			}
		}
		d.Sufferer = append(d.Sufferer, r.cut())
	}
}

// mainFirst orders by what the workload is the main culprit of, then by its share.
func mainFirst(a, b roleRow) int {
	if a.Main != b.Main {
		return map[bool]int{true: -1, false: 1}[a.Main]
	}
	return cmp.Compare(b.Bar, a.Bar)
}

// noOther is why a sufferer has no culprits beside it.
func noOther(c *snapshot.Contention) string {
	if len(c.Culprits) > 0 {
		return "no other workload was seen to use it"
	}
	return view.NoCulprit(c)
}

// explained has the reason of each absent value where its explanation was.
func explained(list []fact) []fact {
	for i := range list {
		if list[i].Why != "" {
			list[i].Of = list[i].Why
		}
	}
	return list
}

// workloadClass is the colour of the page's head. That nothing was found about one
// workload is no all-clear.
func workloadClass(d *workloadPage) string {
	if slices.ContainsFunc(slices.Concat(d.Culprit, d.Sufferer), func(r roleRow) bool { return r.Class == contendedClass && (r.Main || r.ForOthers) }) {
		return contendedClass
	}
	return unknownClass
}

// cut leaves the first ones of the other side; the page of the resource has the others.
func (r roleRow) cut() roleRow {
	shown := min(len(r.Others), partiesShown)
	r.More += len(r.Others) - shown
	r.Others = r.Others[:shown]
	return r
}

// workloadSummary is what the workload is to others, in one line.
func workloadSummary(d *workloadPage) string {
	var main []string
	for _, r := range d.Culprit {
		if r.Main && r.Class == contendedClass {
			main = append(main, r.Title)
		}
	}
	var list []string
	if len(main) > 0 {
		list = append(list, "It is the main culprit for "+strings.Join(main, ", ")+": others wait because of it.")
	}
	switch {
	case slices.ContainsFunc(d.Sufferer, func(r roleRow) bool { return r.Class == contendedClass && r.ForOthers }):
		list = append(list, "It waits because of others.")
	case len(d.Sufferer) > 0:
		list = append(list, "It waits; see below whether because of others.")
	case len(main) == 0:
		return "It is the main culprit for nothing in use, and not among those that wait longest."
	}
	return strings.Join(list, " ")
}

func workloadUses(s *view.State, w *snapshot.WorkloadState, row workloadRow) []fact {
	r, _ := w.Rates.Get() // each part is absent without rates
	absent := merged(w.Absent, s.Snapshot.Absent, snapshot.Absent{"rates": "it is new, or its counters were reset", "pod": "not a pod"})
	size := wholeNumber(view.Bytes)
	net, _ := r.Network.Get()
	traffic := func(v float64) cell {
		if r.Network.IsZero() {
			return cellOf(snapshot.Opt[float64]{}, view.BitRate, absent, "network", "pod")
		}
		return cell{Text: view.BitRate(v)}
	}
	return []fact{
		{"CPU", row.CPU, "cores, of " + view.Optional(s.Snapshot.CPU.Online, func(n int) string { return view.Count(uint64(n)) })},
		{"Working set", row.Memory, "memory without file pages that are not in use"},
		{"Memory", cellOf(w.MemoryBytes, size, absent, "memoryBytes", "memory"), "file pages included"},
		{"RSS", cellOf(w.RSSBytes, size, absent, "rssBytes", "memory"), "no file backs it"},
		{"Swap", cellOf(w.SwapBytes, size, absent, "swapBytes", "memory"), "swapped out"},
		{"Receives", traffic(net.ReceiveBytesPerSecond), "of its own network namespace"},
		{"Transmits", traffic(net.TransmitBytesPerSecond), "of its own network namespace"},
	}
}

func workloadIO(s *view.State, w *snapshot.WorkloadState) (rows []ioRow, none string) {
	r, ok := w.Rates.Get()
	if !ok {
		return nil, "Unknown: " + view.AbsentReason(merged(w.Absent, s.Snapshot.Absent, snapshot.Absent{"new": "it is new, or its counters were reset"}), "io", "rates", "new") + "."
	}
	for _, io := range r.IO {
		if io.ReadsPerSecond+io.WritesPerSecond <= 0 {
			continue
		}
		name, known := s.DiskName(io.Number)
		row := ioRow{
			Name: view.Printable(name), Reads: cell{Text: view.Number(io.ReadsPerSecond)}, Writes: cell{Text: view.Number(io.WritesPerSecond)},
			Read: cell{Text: view.ByteRate(io.ReadBytesPerSecond)}, Written: cell{Text: view.ByteRate(io.WrittenBytesPerSecond)},
		}
		if known {
			row.ID = name
		}
		rows = append(rows, row)
	}
	if why := w.Absent["io"]; why != "" && len(rows) == 0 {
		return nil, "Unknown: " + view.Printable(why) + "."
	}
	return rows, "No request in the window."
}

func workloadWaits(s *view.State, w *snapshot.WorkloadState) []gaugeRow {
	r, _ := w.Rates.Get() // each part is absent without rates
	absent := merged(w.Pressure.Absent, s.Snapshot.Absent, snapshot.Absent{"rates": "it is new, or its counters were reset"})
	if why, ok := w.Absent["pressure"]; ok {
		absent.Because("rates", why)
	}
	row := func(name, key string, o snapshot.Opt[float64], full string) gaugeRow {
		share, known := o.Get()
		return gaugeRow{Name: name, cell: highlightIf(cellOf(o, view.Ratio, absent, key, "rates"), share >= highlightStall), Bar: barOf(share), None: !known, Full: "100 % = " + full}
	}
	const some, all = "a task of it waited all of the time", "no task of it ran at any time"
	return []gaugeRow{
		row("CPU, some", "cpu", r.Pressure.CPU.Some, some), row("Memory, some", "memory", r.Pressure.Memory.Some, some), row("Memory, full", "memory", r.Pressure.Memory.Full, all),
		row("I/O, some", "io", r.Pressure.IO.Some, some), row("I/O, full", "io", r.Pressure.IO.Full, all),
	}
}

// workloadLevels are the rules that name the workload as a candidate.
func workloadLevels(s *view.State, w *snapshot.WorkloadState) []levelRow {
	var rows []levelRow
	for i := range s.Levels.Verdicts {
		v := &s.Levels.Verdicts[i]
		at := slices.IndexFunc(v.Candidates, func(c plugins.Candidate) bool { return c.Cgroup == w.Cgroup })
		if at < 0 {
			continue
		}
		p, c := newPageVerdict(s, v, false), v.Candidates[at]
		rows = append(rows, levelRow{
			Title: p.Title + " (plugin " + p.Plugin + ")", Device: p.Device, Level: p.Level, State: p.State, For: p.Since,
			Relief: view.Quantity(c.Relief, c.Unit), Why: "candidate " + view.Count(uint64(at+1)) + " of " + view.Count(uint64(len(v.Candidates))) + ": " + view.Printable(c.Why),
		})
	}
	return rows
}

func workloadLimits(w *snapshot.WorkloadState, row workloadRow) []fact {
	r, _ := w.Rates.Get() // absent without rates
	absent := merged(w.Absent, snapshot.Absent{"rates": "it is new, or its counters were reset"})
	list := []fact{
		{"Memory limit", noLimit(row.Limit, w), "of its cgroup"},
		{"Limit hits", row.LimitHits, "in the window"},
		{"CPU quota throttled it", cellOf(r.ThrottledRatio, view.Ratio, absent, "throttledMicrosecondsTotal", "cpu", "rates"), "of the time, of all its CPUs together"},
		{"OOM kills", cellOf(w.OOMKills, view.Count, absent, "oomKillsTotal", "memory"), "since it started"},
	}
	if p := w.Pod; p != nil {
		list = append(list,
			fact{"CPU request", cell{Text: millicores(p.CPURequestMillicores, "no request")}, "limit " + millicores(p.CPULimitMillicores, "none")},
			fact{"Memory request", cell{Text: bytesOr(p.MemoryRequestBytes, "no request")}, "limit " + bytesOr(p.MemoryLimitBytes, "none")},
			fact{"QoS", cell{Text: view.Printable(p.QoS)}, "priority " + strconv.Itoa(int(p.Priority))},
		)
	}
	return list
}

// noLimit is the memory limit, or that there is none.
func noLimit(c cell, w *snapshot.WorkloadState) cell {
	if c.Why != "" && w.Absent["memoryLimitBytes"] == "" && w.Absent["memory"] == "" {
		return cell{Text: "none"}
	}
	return c
}

func millicores(n uint64, none string) string {
	if n == 0 {
		return none
	}
	return view.Number(float64(n)/1000) + " cores"
}

func bytesOr(n uint64, none string) string {
	if n == 0 {
		return none
	}
	return view.Bytes(float64(n))
}

// addCluster adds what the API server reports: why a pod is protected, and how it is
// throttled.
func (d *workloadPage) addCluster(c *view.Cluster, w *snapshot.WorkloadState) {
	d.Throttled = c.Throttles.Of(w.Cgroup)
	if c.PodOf == nil || w.PodUID == "" {
		return
	}
	pod, known := c.PodOf(w.PodUID)
	if !known {
		return
	}
	for _, p := range pod.Protections {
		d.Protections = append(d.Protections, view.Printable(p.Why))
	}
	if pod.OptedOut != "" {
		d.Protections = append(d.Protections, "at soft: its owner opted out ("+view.Printable(pod.OptedOut)+")")
	}
}
