package e2e_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The night on the controller's page, at the width of a telephone and of a screen, with
// a name as long as it may be.
func TestBrowserShowsNight(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.FileServer(http.Dir("../daemon/web/testdata")))
	t.Cleanup(server.Close)
	b := startBrowser(t)
	for _, width := range []int{420, 1400} {
		b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500})
		b.open(server.URL + "/pages_controller_night.html")
		b.waitFor("the drawing is there", `document.readyState === 'complete' && document.querySelectorAll('svg.gantt g').length === 6`)
		assert.Empty(t, b.js(offScreen), "%d px: nothing is off the screen", width)
		assert.Empty(t, b.js(`(() => {
			const all = document.querySelector('svg.gantt').getBoundingClientRect();
			const out = [...document.querySelectorAll('svg.gantt text, svg.gantt rect')].filter((e) => { const r = e.getBoundingClientRect(); return r.right > all.right + 1 || r.left < all.left - 1 });
			return out.map((e) => e.outerHTML).join();
		})()`), "%d px: all is inside of the drawing", width)
	}
}
