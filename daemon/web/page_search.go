package web

import (
	"fmt"
	"net/http"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// foundRow is one result.
type foundRow struct {
	ID, Name, Kind, Where string // ID is the name as it is, for a link
	Link                  string // workload or device; empty: none
}

type searchPage struct {
	pageFrame
	Asked                      bool // a text was given
	Summary                    string
	Workloads, Ended, Devices  []foundRow
	Decisions                  []pageDecision
	MoreWorkloads, MoreEnded   int
	MoreDevices, MoreDecisions int
}

// Bounds of a search.
const (
	maxQuery       = 128
	resultsShown   = 50
	decisionsFound = 20
)

// searchHandler is GET /search?q=TEXT.
type searchHandler struct{ *pages }

func (p *searchHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query().Get("q")
	if len(query) > maxQuery {
		http.Error(w, fmt.Sprintf("search: the text is longer than %d bytes", maxQuery), http.StatusBadRequest)
		return
	}
	s := p.state()
	if s == nil {
		p.notFound(w, nil, "workload", "")
		return
	}
	d := searchPage{pageFrame: p.frame(s, "Search"), Asked: query != ""}
	d.Query = view.Printable(query)
	if d.Asked {
		d.Title = "Search: " + view.Clip(query)
		found := s.Search(query, p.decisions())
		d.Workloads, d.MoreWorkloads = workloadResults(s, found.Workloads)
		d.Ended, d.MoreEnded = endedResults(s, p.past.Search(query), p.now())
		d.Devices, d.MoreDevices = deviceResults(found)
		d.MoreDecisions = max(0, len(found.Decisions)-decisionsFound)
		d.Decisions = pageDecisions(found.Decisions[:len(found.Decisions)-d.MoreDecisions], s.Snapshot.Time, false)
		ended := ""
		if n := len(d.Ended) + d.MoreEnded; n > 0 {
			ended = " and " + view.Count(uint64(n)) + " that ended"
		}
		d.Summary = countOf(len(found.Workloads), "workload", "workloads") + ended + ", " + countOf(len(found.Disks)+len(found.NICs)+len(found.Filesystems), "device", "devices") + ", " + countOf(len(found.Decisions), "decision", "decisions")
	}
	p.write(w, "page_search.html", d, http.StatusOK)
}

func countOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return view.Count(uint64(n)) + " " + many
}

func workloadResults(s *view.State, list []*snapshot.WorkloadState) (rows []foundRow, more int) {
	for _, w := range list[:min(len(list), resultsShown)] {
		rows = append(rows, foundRow{ID: w.Cgroup, Name: view.Printable(s.WorkloadName(w)), Kind: view.Printable(string(w.Kind)), Where: view.Printable(w.Cgroup), Link: "workload"})
	}
	return rows, len(list) - len(rows)
}

func deviceResults(f view.Found) (rows []foundRow, more int) {
	for _, d := range f.Disks {
		rows = append(rows, foundRow{ID: d.Name, Name: view.Printable(d.Name), Kind: diskKind(&d.Disk), Link: "device"})
	}
	for _, n := range f.NICs {
		rows = append(rows, foundRow{ID: n.Name, Name: view.Printable(n.Name), Kind: view.NICKind(&n.NIC), Link: "device"})
	}
	for _, m := range f.Filesystems {
		rows = append(rows, foundRow{Name: view.Printable(m.Mountpoint), Kind: "filesystem, on the status page", Where: view.Printable(m.Device)})
	}
	more = max(0, len(rows)-resultsShown)
	return rows[:len(rows)-more], more
}
