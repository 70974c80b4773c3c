package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
)

//go:embed page.html page_contention.html
var pageHTML embed.FS

// pageScript keeps the page up to date without loading it anew.
//
//go:embed page.js
var pageScript string

// page is the status page: rendered here, in one response, without an asset and
// whole without a script, so that it also works over a port-forward from a
// phone.
type page struct {
	state     func() *view.State
	decisions func() []evict.Decision
	now       func() time.Time
	template  *template.Template
	policy    string
}

// newPage serves the status page. By itself it follows every state, and without
// scripts it is fetched anew every two seconds; with ?hold it stands still,
// with ?open all its details are open.
func newPage(state func() *view.State, decisions func() []evict.Decision) *page {
	return &page{
		state: state, decisions: decisions, now: time.Now, policy: pagePolicy(),
		template: template.Must(template.ParseFS(pageHTML, "*.html")), // compiled in, and rendered by the tests
	}
}

// pagePolicy lets the page load nothing, and run and hear only what is its own:
// what a hostile name could smuggle in would not run.
func pagePolicy() string {
	hash := sha256.Sum256([]byte(pageScript))
	return "default-src 'none'; script-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; connect-src 'self'; " + restOfPolicy
}

const restOfPolicy = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	d := p.data(query.Has("open"))
	d.Hold, d.Script = query.Has("hold"), template.JS(pageScript) //nolint:gosec // our own
	var b bytes.Buffer
	if err := p.template.ExecuteTemplate(&b, "page.html", d); err != nil {
		http.Error(w, fmt.Sprintf("status page: %v", err), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", p.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(b.Bytes()) // whoever asked is gone: nobody is left to tell
}

func (s *Server) page() *page { return newPage(s.whole, s.Decisions) }
