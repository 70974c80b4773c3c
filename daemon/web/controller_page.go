package web

import (
	"cmp"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/capability"
	"github.com/plimsoll-dev/plimsoll/daemon/gantt"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
)

// controllerPage is the data of the page, which needs no script.
type controllerPage struct {
	ControllerState
	Now           time.Time
	Title         string
	Reloads, Hold bool
}

// culpritPage is one culprit on all its nodes; nil: it is none.
type culpritPage struct {
	Title         string
	Reloads, Hold bool
	Culprit       *agents.Culprit
	Name          string
	MoreNodes     int
	Advice        view.Advice
}

// controllerTemplates are compiled in, and rendered by the tests.
func controllerTemplates() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"lacking": capability.Lacking, "since": since, "wait": waitText, "names": waitReason,
		"first": firstRows[agents.MissingAgent], "more": moreRows[agents.MissingAgent], "firstPressed": firstRows[agents.Pressed], "morePressed": moreRows[agents.Pressed],
		"firstReported": firstRows[agents.ReportedNode], "moreReported": moreRows[agents.ReportedNode],
		"firstUnread": firstRows[agents.UnreadableNode], "firstLoads": firstRows[admission.WaitingLoad], "moreLoads": moreRows[admission.WaitingLoad],
		"firstMaintenances": firstRows[vgdp.PostponedMaintenance], "moreMaintenances": moreRows[vgdp.PostponedMaintenance],
		"firstCulprits": firstRows[agents.Culprit], "moreCulprits": moreCulprits, "owner": ownerText, "ratio": view.Ratio, "clip": view.Clip, "printable": view.Printable,
		"plots": func() template.CSS { return gantt.Style }, "gantt": gantt.SVG, "ganttkey": gantt.Key, "night": newNightPage, "old": gantt.Old, "omitted": gantt.Omitted,
	}).ParseFS(pageHTML, "layout.html", "style.html", "controller*.html"))
}

// page is the status page of the controller. It reloads itself; ?hold pauses it.
func (c *Controller) page(w http.ResponseWriter, r *http.Request) {
	hold := r.URL.Query().Has("hold")
	d := controllerPage{ControllerState: c.State(), Now: time.Now(), Title: "Plimsoll controller", Reloads: !hold, Hold: hold}
	writePage(w, controllerTemplates(), "controller.html", d, http.StatusOK, plainPolicy)
}

// culprit is GET /culprit?owner=&kind=&resource=: on which nodes others wait because of it.
func (c *Controller) culprit(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	d := culpritPage{Title: "Culprit – Plimsoll controller", Name: view.Clip(q.Get("owner")), Advice: view.CulpritAdvice(q.Get("resource"), q.Get("kind"), q.Get("owner"))}
	status := http.StatusNotFound
	if s := c.State(); s.Agents != nil && s.Agents.Culprits != nil {
		for i := range s.Agents.Culprits.List {
			k := &s.Agents.Culprits.List[i]
			if k.Owner == q.Get("owner") && k.Kind == q.Get("kind") && k.Resource == q.Get("resource") {
				d.Culprit, d.MoreNodes, status = k, max(0, k.Nodes-len(k.On)), http.StatusOK
			}
		}
	}
	writePage(w, controllerTemplates(), "controller_culprit.html", d, status, plainPolicy)
}

// ownerText is who recreates the culprit's pods, in words: "shop/cart (Deployment or
// ReplicaSet)"; a workload that is no pod by its name.
func ownerText(c agents.Culprit) string {
	parts := strings.SplitN(c.Owner, "/", 3)
	if c.Kind != string(snapshot.KindPod) || len(parts) != 3 {
		return view.Clip(c.Owner)
	}
	kind := map[string]string{"ReplicaSet": "Deployment or ReplicaSet", "Job": "CronJob or Job"}[parts[1]]
	return view.Clip(parts[0]+"/"+parts[2]) + " (" + cmp.Or(kind, view.Clip(parts[1])) + ")"
}

// moreCulprits is how many are not shown.
func moreCulprits(c *agents.Culprits) int { return c.More + moreRows(c.List) }

// nightPage is a night as the page has it, in UTC like everything there.
type nightPage struct {
	*backup.Night
	Counts             string
	Missed, Unfollowed []*backup.ScheduleState
	WillMiss           []string
	Rows               []nightRow
	More               int
}

// nightRow is a row of the plot in words.
type nightRow struct {
	Name, Begins, Ends, Due, Verdict string
	Late                             bool
}

func newNightPage(n backup.Night) nightPage {
	p := nightPage{Night: &n, Counts: gantt.Counts(&n)}
	p.Missed, p.Unfollowed = gantt.Missed(&n)
	p.WillMiss = gantt.WillMiss(&n, time.UTC)
	rows, more := gantt.First(&n)
	p.More = more
	for i := range rows {
		r := &rows[i]
		p.Rows = append(p.Rows, nightRow{r.Name(), gantt.BeginText(&n, r.First, time.UTC), gantt.EndText(&n, r.First, time.UTC), gantt.DueText(&n, r.First, time.UTC), r.Verdict(), r.Late() != ""})
	}
	return p
}

// Newest is how old the newest good Backup of a Schedule is.
func (p nightPage) Newest(s *backup.ScheduleState) string { return gantt.NewestText(p.Night, s) }

// maxRows of a table: a browser cannot show thousands of nodes.
const maxRows = 50

func firstRows[T any](list []T) []T { return list[:min(len(list), maxRows)] }

// moreRows is how many are not shown.
func moreRows[T any](list []T) int { return max(0, len(list)-maxRows) }

// since is the time from t to now.
func since(now, t time.Time) string { return waitText(now.Sub(t).Seconds()) }

// waitText is a duration, rounded to seconds.
func waitText(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// waitReason is why a Backup waits.
func waitReason(p backup.QueuedBackup) string { return p.Why() }
