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

	"github.com/plimsoll-dev/plimsoll/daemon/history"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
)

//go:embed *.html
var pageHTML embed.FS

// pageScript updates the page without a reload.
//
//go:embed page.js
var pageScript string

// page is the status page: rendered on the server, in one response without
// further assets, and complete without a script, so that it also works over a
// port-forward from a phone.
type page struct {
	state     func() *view.State
	decisions func() []evict.Decision
	now       func() time.Time
	template  *template.Template
	policy    string
}

// newPage serves the status page. It follows every state, and reloads every two
// seconds where scripts are disabled; ?hold pauses it, ?open expands all
// details.
func newPage(state func() *view.State, decisions func() []evict.Decision) *page {
	return &page{
		state: state, decisions: decisions, now: time.Now, policy: contentSecurityPolicy(),
		template: pageTemplates(),
	}
}

// pageTemplates are compiled in, and rendered by the tests.
func pageTemplates() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{"label": label, "plots": func() template.CSS { return history.Style }}).ParseFS(pageHTML, "layout.html", "style.html", "parts.html", "page*.html"))
}

// labelledCell is a cell with the heading of its column, which a narrow page shows
// beside it.
type labelledCell struct {
	Label string
	cell
}

func label(name string, c cell) labelledCell { return labelledCell{name, c} }

// contentSecurityPolicy lets the page load nothing, run only its own script, and connect
// and send its search only to its own server: a script injected through a malicious
// name would not run.
func contentSecurityPolicy() string {
	hash := sha256.Sum256([]byte(pageScript))
	return "default-src 'none'; script-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; connect-src 'self'; form-action 'self'; " + commonPolicy
}

// The policies of pages without a script: with the search, and without any form.
const (
	commonPolicy = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
	searchPolicy = "default-src 'none'; form-action 'self'; " + commonPolicy
	plainPolicy  = "default-src 'none'; form-action 'none'; " + commonPolicy
)

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	d := p.data(query.Has("open"))
	d.Hold, d.Script = query.Has("hold"), template.JS(pageScript) //nolint:gosec // our own
	writePage(w, p.template, "page.html", d, http.StatusOK, p.policy)
}

// writePage renders a page, or answers with the error.
func writePage(w http.ResponseWriter, t *template.Template, name string, data any, status int, policy string) {
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, name, data); err != nil {
		http.Error(w, fmt.Sprintf("page: %v", err), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client may be gone
}
