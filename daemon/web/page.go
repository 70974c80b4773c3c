package web

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
)

//go:embed page.html
var pageHTML string

// page is the status page: rendered here, in one response, without a script
// or an asset, so that it also works over a port-forward from a phone.
type page struct {
	state     func() *view.State
	decisions func() []evict.Decision
	now       func() time.Time
	template  *template.Template
}

// pageHandler serves the status page. By itself it is fetched anew every two
// seconds; with ?hold it stands still, with ?open all its details are open.
func pageHandler(state func() *view.State, decisions func() []evict.Decision) http.Handler {
	return &page{
		state: state, decisions: decisions, now: time.Now,
		template: template.Must(template.New("page").Parse(pageHTML)), // compiled in, and rendered by the tests
	}
}

// pagePolicy lets the page load nothing at all: what a hostile name could
// smuggle in would not run.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	d := p.data()
	d.Hold, d.Open = query.Has("hold"), query.Has("open")
	var b bytes.Buffer
	if err := p.template.Execute(&b, d); err != nil {
		http.Error(w, fmt.Sprintf("status page: %v", err), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(b.Bytes()) // whoever asked is gone: nobody is left to tell
}

func (s *Server) page() http.Handler { return pageHandler(s.whole, s.Decisions) }
