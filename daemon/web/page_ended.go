package web

import (
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/history"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// endedPage is a workload that the newest sample does not have, and the history has.
type endedPage struct {
	pageFrame
	Name, Cgroup, PodUID string
	LastSeen, Stamp, Ago string
	Past                 *pagePast
	Decisions            []pageDecision
}

// ended is the page of a workload that has ended, or the one of no workload.
func (p *pages) ended(w http.ResponseWriter, r *http.Request, s *view.State, name string) {
	past := p.past.Past(name)
	if len(past) == 0 {
		p.notFound(w, s, "workload", name)
		return
	}
	last, now := past[0], p.now()
	rng, err := endedRange(r.URL.Query(), last.LastSeen, now)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d := endedPage{
		Name: nameOfPast(last), Cgroup: view.Printable(last.Cgroup), PodUID: view.Printable(last.PodUID),
		LastSeen: view.Stamp(last.LastSeen), Stamp: last.LastSeen.Format(time.RFC3339), Ago: view.Age(now.Sub(last.LastSeen)),
	}
	d.pageFrame = p.frame(s, d.Name)
	d.Again = "workload?name=" + url.QueryEscape(name)
	d.Past = newPagePast(p, rng, d.Again, p.past.Workload(name, rng))
	d.Decisions = latestDecisions(view.DecisionsAbout(p.decisions(), last.Cgroup, last.Title), s)
	p.write(w, "page_ended.html", d, http.StatusOK)
}

// endedRange is the range that was asked for; that about the end, where none was and the
// workload ended before it.
func endedRange(query url.Values, end, now time.Time) (history.Range, error) {
	rng, err := history.ParseRange(query, now)
	if err != nil || !rng.At.IsZero() || !end.Before(rng.From) {
		return rng, err
	}
	query.Set("at", end.Format(time.RFC3339))
	if about, err := history.ParseRange(query, now); err == nil { // older than what may be asked for: as it was
		return about, nil
	}
	return rng, nil
}

// nameOfPast is a workload's title, or its cgroup where it has none.
func nameOfPast(w history.PastWorkload) string {
	if w.Title == "" {
		return view.Printable(w.Cgroup)
	}
	return view.Printable(w.Title)
}

// endedResults are the workloads of a search that the newest sample does not have.
func endedResults(s *view.State, list []history.PastWorkload, now time.Time) (rows []foundRow, more int) {
	live := map[string]bool{}
	for i := range s.Snapshot.Workloads {
		live[s.Snapshot.Workloads[i].Cgroup] = true
	}
	ended := slices.DeleteFunc(list, func(w history.PastWorkload) bool { return live[w.Cgroup] })
	for _, w := range ended[:min(len(ended), resultsShown)] {
		rows = append(rows, foundRow{ID: w.Cgroup, Name: nameOfPast(w), Kind: "last seen " + view.Age(now.Sub(w.LastSeen)) + " ago", Where: view.Printable(w.Cgroup), Link: "workload"})
	}
	return rows, len(ended) - len(rows)
}
