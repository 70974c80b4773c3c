package web

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/history"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// historyAPI is GET /api/v1/history.
type historyAPI struct {
	store *history.Store
	now   func() time.Time
}

func (a *historyAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rng, err := history.ParseRange(r.URL.Query(), a.now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b, err := json.Marshal(a.store.Answer(rng, r.URL.Query().Get("workload"))) // without indents, which would be most of it
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n')) // the client may be gone
}

// historyPage is an hour or a day of the node and its devices, drawn on the server.
type historyPage struct {
	pageFrame
	From, To, Step string // Step is the length of a point
	API            string // the query of the same in the API
	Links          []historyLink
	Rules, Plots   []history.Plot
	Calm           string
	Decisions      []historyDecision
	MoreDecisions  int
	Sections       []historySection
	Omitted        int
}

type historyLink struct {
	Text, Href string
	Current    bool
}

// historyDecision is a decision in the range.
type historyDecision struct {
	pageDecision
	Anchor string
}

// historySection has the plots of the disks or the NICs.
type historySection struct {
	ID, Title string
	Plots     []history.Plot
	More      []historyLink
}

// pagePast is the history of one workload or device, on its page.
type pagePast struct {
	From, To string
	Links    []historyLink
	Plots    []history.Plot
}

// How many devices are drawn; the others have a link.
const (
	disksDrawn = 3
	nicsDrawn  = 2
)

// historyHandler is GET /history.
type historyHandler struct{ *pages }

func (p *historyHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rng, err := history.ParseRange(r.URL.Query(), p.now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s, decisions := p.state(), p.decisions()
	store, marks := p.past, decisionMarks(decisions)
	rules, calm, gaps := store.Rules(rng)
	disks, nics := store.Devices(rng)
	d := historyPage{
		pageFrame: p.frame(s, historyTitle(rng)), From: view.Stamp(rng.From), To: view.Stamp(rng.To), Step: view.Age(rng.Step()),
		API: rng.Query(rng.At), Links: historyLinks(rng, p.now(), "history?"), Omitted: store.Omitted(),
		Rules: marked(rules, marks), Calm: calmText(len(rules), calm, gaps), Plots: marked(store.Node(rng), marks),
		Sections: []historySection{newHistorySection(store, "disks", "Disks", rng, disks, disksDrawn, marks), newHistorySection(store, "network", "Network", rng, nics, nicsDrawn, marks)},
	}
	d.Again = "history?" + d.API
	d.Decisions, d.MoreDecisions = decisionsIn(decisions, rng, p.now())
	p.write(w, "page_history.html", d, http.StatusOK)
}

// newPagePast is the history for the page of one workload or device; nil where none is
// served.
func newPagePast(p *pages, r history.Range, again string, plots []history.Plot) *pagePast {
	if p.past == nil {
		return nil
	}
	return &pagePast{
		From: view.Stamp(r.From), To: view.Stamp(r.To), Links: historyLinks(r, p.now(), again+"&"), Plots: marked(plots, decisionMarks(p.decisions())),
	}
}

func historyTitle(r history.Range) string {
	switch {
	case r.At.IsZero():
		return "The last " + r.Name
	case r.Name == "day":
		return "The day about " + view.Stamp(r.At) + " UTC"
	}
	return "The hour about " + view.Clock(r.At) + " UTC"
}

// historyLinks lead to other times; href is a page's, up to the range.
func historyLinks(r history.Range, now time.Time, href string) []historyLink {
	hour, day := history.Range{Name: "hour"}, history.Range{Name: "day"}
	list := []historyLink{
		{"last hour", href + hour.Query(time.Time{}), r.Name == "hour" && r.At.IsZero()},
		{"last day", href + day.Query(time.Time{}), r.Name == "day" && r.At.IsZero()},
	}
	if r.Name == "day" {
		return list
	}
	middle := r.From.Add(r.To.Sub(r.From) / 2)
	if earlier := middle.Add(-time.Hour); now.Sub(earlier) < 24*time.Hour {
		list = append(list, historyLink{Text: "an hour earlier", Href: href + r.Query(earlier)})
	}
	if later := middle.Add(time.Hour); later.Before(now) {
		list = append(list, historyLink{Text: "an hour later", Href: href + r.Query(later)})
	}
	return list
}

// calmText is about the rules that are not drawn, and what is not known: without that it
// would read as an all-clear.
func calmText(pressed, calm, gaps int) string {
	text := "Rules that were judged and neither soft nor hard: " + view.Count(uint64(calm))
	switch {
	case pressed == 0 && calm == 0:
		text = "No rule was judged in this time"
	case pressed > 0:
		text = "Other rules that were judged, and neither soft nor hard: " + view.Count(uint64(calm))
	case gaps == 0:
		text += ", all of them"
	}
	if gaps == 0 {
		return text + "."
	}
	return text + ". Rules whose level is not known for all or a part of this time: " + view.Count(uint64(gaps)) + "."
}

// moment is the link to the hour about a decision, in which it is marked; empty where
// the decision is older than the history.
func moment(d *evict.Decision, now time.Time) string {
	if now.Sub(d.Time) > 24*time.Hour {
		return ""
	}
	return "history?" + history.Range{Name: "hour"}.Query(d.Time) + "#" + decisionAnchor(d)
}

// decisionAnchor is the name of a decision within the page of its hour.
func decisionAnchor(d *evict.Decision) string { return "decision-" + url.PathEscape(d.ID) }

// decisionMarks are decisions as marks, each with the link to its hour.
func decisionMarks(list []evict.Decision) []history.Mark {
	marks := make([]history.Mark, len(list))
	for i := range list {
		d := &list[i]
		marks[i] = history.Mark{Time: d.Time, Text: view.Clock(d.Time) + " UTC " + view.DecisionText(d) + ": " + causeNames(d.Causes), Link: moment(d, d.Time)}
	}
	return marks
}

func marked(plots []history.Plot, marks []history.Mark) []history.Plot {
	for i := range plots {
		plots[i].Marks = marks
	}
	return plots
}

// decisionsIn are the newest decisions of a range, and how many more there are.
func decisionsIn(list []evict.Decision, r history.Range, now time.Time) (shown []historyDecision, more int) {
	for i := range list {
		d := &list[i]
		switch {
		case d.Time.Before(r.From) || d.Time.After(r.To):
		case len(shown) == decisionsShown:
			more++
		default:
			shown = append(shown, historyDecision{newPageDecision(d, now, false), decisionAnchor(d)})
		}
	}
	return shown, more
}

func newHistorySection(store *history.Store, id, title string, r history.Range, names []string, drawn int, marks []history.Mark) historySection {
	s := historySection{ID: id, Title: title}
	for i, name := range names {
		if i < drawn {
			s.Plots = append(s.Plots, marked(store.Device(name, r), marks)...)
			continue
		}
		s.More = append(s.More, historyLink{Text: view.Printable(name), Href: "device?name=" + url.QueryEscape(name) + "&" + r.Query(r.At)})
	}
	return s
}
