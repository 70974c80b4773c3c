package web

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
)

//go:embed controller.html
var controllerHTML string

// controllerPage is the data of the page, which needs no script.
type controllerPage struct {
	ControllerState
	Now time.Time
}

// page is the status page of the controller. It reloads itself.
func (c *Controller) page(w http.ResponseWriter, _ *http.Request) {
	t := template.Must(template.New("controller").Funcs(template.FuncMap{
		"since": since, "wait": waitText, "names": waitReason,
		"first": firstRows[agents.MissingAgent], "more": moreRows[agents.MissingAgent], "firstPressed": firstRows[agents.Pressed], "morePressed": moreRows[agents.Pressed],
		"firstReported": firstRows[agents.ReportedNode], "moreReported": moreRows[agents.ReportedNode],
		"firstUnread": firstRows[agents.UnreadableNode], "firstLoads": firstRows[admission.WaitingLoad], "moreLoads": moreRows[admission.WaitingLoad],
	}).Parse(controllerHTML)) // compiled in, and rendered by the tests
	var b bytes.Buffer
	if err := t.Execute(&b, controllerPage{ControllerState: c.State(), Now: time.Now()}); err != nil {
		http.Error(w, fmt.Sprintf("status page: %v", err), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; "+commonPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(b.Bytes()) // the client may be gone
}

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
