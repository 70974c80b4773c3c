package web

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"

	"github.com/plimsoll-dev/plimsoll/daemon/history"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// devicePage is one disk or NIC, or both if they share a name: how far it is used, which
// workloads use it and wait for it, and what is judged and decided about it.
type devicePage struct {
	pageFrame
	Name, ID, Kind string
	Class          string
	Disks          []diskRow
	NICs           []nicRow
	Gauges         []gaugeRow
	Stack          []stackRow
	Contention     []contentionRow
	Users          []userRow
	MoreUsers      int
	NoUser         string
	Verdicts       []pageVerdict
	Limits         []fact
	Throttled      []string
	Decisions      []pageDecision
	Past           *pagePast // nil: no history is served
}

// stackRow is a device above or below.
type stackRow struct{ ID, Name, How string }

// userRow is a workload's IO on the disk.
type userRow struct {
	ID, Name                           string
	Reads, Writes, Read, Written, Wait cell
	bytes                              float64
}

// usersShown of a disk, those with the most bytes.
const usersShown = 30

// deviceHandler is GET /device?name=NAME.
type deviceHandler struct{ *pages }

func (p *deviceHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rng, err := history.ParseRange(r.URL.Query(), p.now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name := r.URL.Query().Get("name")
	s := p.state()
	if s == nil || len(name) > maxName {
		p.notFound(w, s, "device", name)
		return
	}
	disks, nics := s.FindDevices(name)
	if len(disks)+len(nics) == 0 {
		p.notFound(w, s, "device", name)
		return
	}
	d := newDevicePage(s, name, disks, nics)
	d.pageFrame = p.frame(s, d.Name)
	d.Class = staleClass(d.Class, s, p.now())
	d.Again = "device?name=" + url.QueryEscape(d.ID)
	d.Past = newPagePast(p.pages, rng, d.Again, p.past.Device(d.ID, rng))
	d.Decisions = latestDecisions(view.DecisionsOn(p.decisions(), name), s)
	p.write(w, "page_device.html", d, http.StatusOK)
}

func newDevicePage(s *view.State, name string, disks []*snapshot.DiskState, nics []*snapshot.NICState) devicePage {
	d := devicePage{Name: view.Printable(name), ID: name, NoUser: "No workload does IO on it."}
	for _, disk := range disks {
		d.Kind = diskKind(&disk.Disk)
		d.addDisk(s, disk)
	}
	for _, nic := range nics {
		d.Kind = view.NICKind(&nic.NIC)
		d.addNIC(s, nic)
	}
	for _, c := range view.Contention(s) {
		if c.Device == name {
			d.Contention = append(d.Contention, newContentionRow(s, &c, "the last "+view.Seconds(s.Snapshot.WindowSeconds), false))
		}
	}
	d.addVerdicts(s)
	d.Class = d.class()
	d.Limits = explained(d.Limits)
	if s.Cluster != nil {
		d.Throttled = s.Cluster.Throttles.On(name)
	}
	return d
}

// addVerdicts adds what the rules say of it.
func (d *devicePage) addVerdicts(s *view.State) {
	for i := range s.Levels.Verdicts {
		v := &s.Levels.Verdicts[i]
		if v.Scope == d.ID && (v.Resource == plugins.Disk || v.Resource == plugins.NetworkIO) {
			d.Verdicts = append(d.Verdicts, newPageVerdict(s, v, false))
		}
	}
}

// class is the colour of the page's head: the highest level, else that of a contention.
// Only a device that was judged is an all-clear.
func (d *devicePage) class() string {
	has := func(class string) bool {
		return slices.ContainsFunc(d.Verdicts, func(v pageVerdict) bool { return v.Level == class }) ||
			slices.ContainsFunc(d.Contention, func(c contentionRow) bool { return c.Class == class })
	}
	for _, class := range []string{plugins.Hard.String(), plugins.Soft.String(), unknownClass} {
		if has(class) {
			return class
		}
	}
	if len(d.Verdicts) == 0 || slices.ContainsFunc(d.Verdicts, func(v pageVerdict) bool { return v.Advice != nil }) {
		return unknownClass // not judged, or not yet
	}
	return plugins.None.String()
}

func (d *devicePage) addDisk(s *view.State, disk *snapshot.DiskState) {
	d.Disks = append(d.Disks, diskRows(s, []snapshot.DiskState{*disk})...)
	r, known := disk.Rates.Get()
	busy := snapshot.Opt[float64]{}
	if known {
		busy = snapshot.Some(r.BusyRatio)
	}
	row := d.Disks[len(d.Disks)-1]
	d.Gauges = append(d.Gauges, gaugeRow{Name: "Busy", cell: row.Busy, Bar: barOf(valueOr0(busy)), None: !known, Full: "100 % = a request was in flight all of the time; a fast disk may have width left"})
	d.Limits = append(d.Limits, fact{"Size", cellOf(disk.SizeBytes, wholeNumber(view.Size), disk.Absent, "sizeBytes"), "of the disk"})
	for _, k := range s.Knees(disk.Name) {
		d.Limits = append(d.Limits, fact{"Carries, " + k.Direction, cell{Text: k.Text}, k.How})
	}
	d.addStack(disk.Slaves, disksAbove(s, disk.Name))
	d.addUsers(s, disk.Number)
}

func valueOr0(o snapshot.Opt[float64]) float64 {
	v, _ := o.Get() // absent has no bar
	return v
}

func (d *devicePage) addNIC(s *view.State, nic *snapshot.NICState) {
	d.NICs = append(d.NICs, nicRows(s, []snapshot.NICState{*nic})...)
	row := d.NICs[len(d.NICs)-1]
	r, _ := nic.Rates.Get() // each part is absent without rates
	const full = "100 % = the speed of the link in this direction"
	d.Gauges = append(d.Gauges,
		gaugeRow{Name: "Receive", cell: row.ReceiveUsed, Bar: barOf(valueOr0(r.ReceiveUtilizationRatio)), None: r.ReceiveUtilizationRatio.IsZero(), Full: full},
		gaugeRow{Name: "Transmit", cell: row.TransmitUsed, Bar: barOf(valueOr0(r.TransmitUtilizationRatio)), None: r.TransmitUtilizationRatio.IsZero(), Full: full})
	d.Limits = append(d.Limits, fact{"Speed", row.Speed, "of the link, in each direction"})
	if nic.Master != "" {
		d.Stack = append(d.Stack, stackRow{nic.Master, view.Printable(nic.Master), "it is a port of"})
	}
	d.addStack(nic.Lower, nil)
	d.NoUser = "Traffic of workloads is counted for all links together: see the contention of the network on the status page."
}

// addStack adds the devices directly below and above.
func (d *devicePage) addStack(below, above []string) {
	for _, name := range below {
		d.Stack = append(d.Stack, stackRow{name, view.Printable(name), "it is stacked on"})
	}
	for _, name := range above {
		d.Stack = append(d.Stack, stackRow{name, view.Printable(name), "below"})
	}
}

// disksAbove are the disks that are stacked on one.
func disksAbove(s *view.State, name string) (names []string) {
	for i := range s.Snapshot.Disks {
		if o := &s.Snapshot.Disks[i]; slices.Contains(o.Slaves, name) {
			names = append(names, o.Name)
		}
	}
	return names
}

// addUsers adds the workloads that do IO on a disk.
func (d *devicePage) addUsers(s *view.State, number string) {
	var rows []userRow
	for i := range s.Snapshot.Workloads {
		w := &s.Snapshot.Workloads[i]
		r, _ := w.Rates.Get() // no IO without rates
		at := slices.IndexFunc(r.IO, func(io snapshot.WorkloadIORates) bool {
			return io.Number == number && io.ReadsPerSecond+io.WritesPerSecond > 0
		})
		if at < 0 {
			continue
		}
		io := r.IO[at]
		rows = append(rows, userRow{
			ID: w.Cgroup, Name: view.Printable(s.WorkloadName(w)), bytes: io.ReadBytesPerSecond + io.WrittenBytesPerSecond,
			Reads: cell{Text: view.Number(io.ReadsPerSecond)}, Writes: cell{Text: view.Number(io.WritesPerSecond)},
			Read: cell{Text: view.ByteRate(io.ReadBytesPerSecond)}, Written: cell{Text: view.ByteRate(io.WrittenBytesPerSecond)},
			Wait: newWorkload(s, w).IOStall,
		})
	}
	slices.SortStableFunc(rows, func(a, b userRow) int { return cmp.Compare(b.bytes, a.bytes) })
	d.MoreUsers = max(0, len(rows)-usersShown)
	d.Users = rows[:len(rows)-d.MoreUsers]
}
