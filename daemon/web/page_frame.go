package web

import (
	"html/template"
	"net/http"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/history"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// pages are those beside the status page: of a workload, a device, and a search. They
// are rendered once, by the newest state, and do not follow it.
// Each has a handler, with these in common.
type pages struct {
	template *template.Template
	now      func() time.Time
	// state is nil before the first tick.
	state     func() *view.State
	decisions func() []evict.Decision
	past      *history.Store // nil: no history is served
}

// pageFrame is what they have around their content.
type pageFrame struct {
	Title string
	Node  string
	Query string // in the search field
	Again string // a link to this page, to read it again; empty: none
	At    string // of the sample; empty before the first
	// Alarms are reasons not to trust the values.
	Alarms []view.Alarm
}

func (p *pages) frame(s *view.State, title string) pageFrame {
	f := pageFrame{Title: title}
	if s != nil {
		f.Node, f.At, f.Alarms = view.Printable(s.Agent.Node), view.Clock(s.Snapshot.Time), alarms(s, p.now())
	}
	return f
}

func (p *pages) write(w http.ResponseWriter, name string, data any, status int) {
	writePage(w, p.template, name, data, status, searchPolicy)
}

// maxName of a workload or device that is asked for; the kernel's paths are shorter.
const maxName = 4096

// notFound is the page for a name that the newest sample does not have.
type notFound struct {
	pageFrame
	What, Name string
	// Workloads that the name is a part of, or that all have it.
	Workloads []foundRow
	Devices   []foundRow
	Decisions []pageDecision
	Waiting   bool
	// Several workloads have the name.
	Several bool
}

func (p *pages) notFound(w http.ResponseWriter, s *view.State, what, name string) {
	n := notFound{pageFrame: p.frame(s, "No such "+what), What: what, Name: view.Clip(name), Waiting: s == nil}
	status := http.StatusNotFound
	if s == nil {
		n.Title, status = view.WaitingText, http.StatusServiceUnavailable
	} else if name != "" && len(name) <= maxName {
		stored := p.decisions()
		found := s.Search(name, nil)
		n.Workloads, _ = workloadResults(s, found.Workloads)
		n.Devices, _ = deviceResults(found)
		n.Decisions = pageDecisions(view.DecisionsAbout(stored, name, name), s.Snapshot.Time, false)
	}
	p.write(w, "page_none.html", n, status)
}

// latestDecisions are the newest of those about something, for its page.
func latestDecisions(list []evict.Decision, s *view.State) []pageDecision {
	return pageDecisions(list[:min(len(list), decisionsOnPage)], s.Snapshot.Time, false)
}

// decisionsOnPage of a workload or a device.
const decisionsOnPage = 8
