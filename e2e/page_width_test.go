package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// offScreen is what a reader cannot see: what reaches beyond the window, and what
// scrolls sideways. What is left out on purpose, for screen readers alone, is not.
const offScreen = `(() => {
	const wide = [];
	for (const e of document.querySelectorAll('body *')) {
		if (e.closest('.unseen, .skip, thead, svg, script, details:not([open]) > :not(summary)')) continue;
		const r = e.getBoundingClientRect();
		if (r.width > 0 && (r.right > innerWidth + 1 || r.left < -1)) wide.push(e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 40));
		if (e.matches('.scroll') && e.scrollWidth > e.clientWidth + 1) wide.push('scrolls: ' + e.getAttribute('aria-label'));
	}
	if (document.documentElement.scrollWidth > innerWidth) wide.push('the page scrolls sideways');
	return wide.slice(0, 5).join(' | ');
})()`

// faint is text whose contrast with what is behind it is below WCAG's AA: 4.5, or 3 where
// it is large.
const faint = `(() => {
	const rgb = (c) => c.match(/[\d.]+/g).map(Number);
	const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
	const bad = [];
	for (const e of document.querySelectorAll('body *')) {
		if (e.closest('svg, script') || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
		const s = getComputedStyle(e), a = light(rgb(s.color)), b = light(behind(e)), size = parseFloat(s.fontSize);
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (contrast < (size >= 24 || size >= 18.66 && s.fontWeight >= 700 ? 3 : 4.5)) bad.push(contrast.toFixed(2) + ' ' + e.tagName + ' ' + e.textContent.slice(0, 40));
	}
	return bad.slice(0, 5).join(' | ');
})()`

// look shows a page in each width, and in the narrow one in each scheme, and measures it.
func (b *browser) look(name, url string) {
	b.t.Helper()
	resize := func(width int) {
		b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600})
	}
	resize(420)
	b.open("about:blank")
	b.open(url)
	b.waitFor(name, `document.readyState === 'complete' && !!document.querySelector('h1')`)
	b.js(`document.querySelectorAll('details').forEach((d) => { d.open = true }); 0`)
	for _, scheme := range []string{"light", "dark"} {
		place := name + ", " + scheme
		b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{{"name": "prefers-color-scheme", "value": scheme}}})
		b.waitFor(place, `matchMedia('(prefers-color-scheme: `+scheme+`)').matches`)
		assert.Empty(b.t, b.js(faint), place)
		background := map[string]string{"light": "rgb(244, 246, 248)", "dark": "rgb(16, 23, 30)"}[scheme]
		assert.Equal(b.t, background, b.js(`getComputedStyle(document.body).backgroundColor`), place)
	}
	for _, width := range []int{420, 1400} {
		resize(width)
		// On a telephone the window grows with what is too wide, to be shrunk as a whole.
		place := fmt.Sprintf("%s, as wide as its window of %d px", name, width)
		b.waitFor(place, fmt.Sprintf(`innerWidth === %d`, width))
		assert.Empty(b.t, b.js(offScreen), place)
	}
}

// The pages with the longest names that the tests know.
func TestBrowserPagesFit(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	files, err := filepath.Glob("../daemon/web/testdata/page*.html")
	require.NoError(t, err)
	require.Greater(t, len(files), 15)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, r *http.Request) { // the page waits for a sample
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.Handle("GET /", http.FileServer(http.Dir("../daemon/web/testdata")))
	server := httptest.NewServer(mux)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	for _, file := range files {
		b.look(filepath.Base(file), server.URL+"/"+filepath.Base(file))
	}
}

func TestBrowserPagesOfAgent(t *testing.T) {
	t.Parallel()
	a := startAgent(t).ticked(3)
	b := startBrowser(t)
	b.look("status page", a.url+"/?hold&open")
	first := func(kind string) string {
		b.open(a.url + "/?hold")
		b.waitFor("the page is there", `document.readyState === 'complete' && !!document.querySelector('a[href^="`+kind+`?"]')`)
		return b.js(`document.querySelector('a[href^="` + kind + `?"]').href`).(string)
	}
	eventually(t, "the processes of a workload that has not ended are read", func() error {
		b.look("workload", first("workload"))
		if text := b.js(`document.body.innerText`).(string); !strings.Contains(text, "found, ") {
			return errors.New(text)
		}
		return nil
	})
	b.look("device", first("device"))
	b.look("search", a.url+"/search?q=s")
	b.look("not found", a.url+"/workload?name=no-such-workload")

	t.Run("a keyboard alone searches", func(t *testing.T) {
		key := func(key, text string) {
			for _, kind := range []string{"keyDown", "keyUp"} {
				b.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": key, "text": text, "windowsVirtualKeyCode": map[string]int{"Tab": 9, "Enter": 13}[key]})
			}
		}
		b.open(a.url + "/?hold")
		b.waitFor("the page is there", `document.readyState === 'complete' && !!document.querySelector('#q')`)
		key("Tab", "")
		b.waitFor("the first stop skips to the content", `document.activeElement.className === 'skip' && document.activeElement.getBoundingClientRect().top >= 0`)
		key("Tab", "")
		b.waitFor("the second is the search", `document.activeElement.id === 'q'`)
		assert.NotEqual(t, "none", b.js(`getComputedStyle(document.activeElement).outlineStyle`), "what has the focus is marked")
		b.call("Input.insertText", map[string]any{"text": "slice"})
		key("Enter", "\r")
		b.waitFor("the policy lets the search go", `location.pathname === '/search' && location.search === '?q=slice' && !!document.querySelector('h1')`)
	})
}
