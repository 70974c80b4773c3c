package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/agents"
)

// askController is a page of a controller in a state.
func askController(t *testing.T, s ControllerState, path string) (status int, text string, header http.Header) {
	t.Helper()
	mux := http.NewServeMux()
	(&Controller{State: func() ControllerState { return s }}).restricted(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String(), w.Header()
}

// withCulprits is a leader with a Deployment that is a culprit on twelve nodes, and an agent
// that lies.
func withCulprits() ControllerState {
	s := watching()
	du := agents.Culprit{Owner: "batch/ReplicaSet/du", Kind: "pod", Resource: "disk", Nodes: 42, ShareRatio: 0.71, WaitedRatio: 0.38}
	for i := range 20 {
		du.On = append(du.On, agents.CulpritNode{Node: fmt.Sprintf("n%02d", i), Device: "nvme0n1", Workload: "batch/du-5d4f8-x", ShareRatio: 0.5, Sufferer: "shop/db-0", WaitedRatio: 0.38 - float64(i)/100})
	}
	const evil = "<script>\x1b[2J\u202e"
	liar := agents.Culprit{Owner: evil + strings.Repeat("z", 150), Kind: evil, Resource: evil, Nodes: 1, WaitedRatio: 1, On: []agents.CulpritNode{{Node: "liar", Device: evil, Workload: evil, Sufferer: evil}}}
	s.Agents.Culprits = &agents.Culprits{List: []agents.Culprit{du, liar}, More: 3, UnknownNodes: 2, Unreported: 1}
	return s
}

func controllerScenes() map[string]ControllerState {
	return map[string]ControllerState{"watching": watching(), "culprits": withCulprits(), "leading": leading(), "foreseeing": foreseeing(), "standby": {Identity: "b_2", Leader: "a_1"}}
}

func TestControllerNoCulprit(t *testing.T) {
	const allClear = "No agent reports a workload that waits because of others."
	page := func(c agents.Culprits) string {
		s := watching()
		s.Agents.Culprits = &c
		_, text, _ := askController(t, s, "/")
		return text
	}
	assert.True(t, strings.Contains(page(agents.Culprits{}), allClear))
	for why, c := range map[string]agents.Culprits{
		"On 3 nodes workloads wait":                               {UnknownNodes: 3},
		"On 3 nodes the kernel does not report for each resource": {UnseenNodes: 3},
		"3 agents report no contention":                           {Unreported: 3},
		"3 agents are silent":                                     {Silent: 3},
	} {
		text := page(c)
		assert.False(t, strings.Contains(text, allClear), why)
		assert.True(t, strings.Contains(text, why), why)
	}
}

func TestControllerCulprits(t *testing.T) {
	s := withCulprits()
	_, page, h := askController(t, s, "/")
	assert.Equal(t, plainPolicy, h.Get("Content-Security-Policy"))
	for _, want := range []string{
		">batch/du (Deployment or ReplicaSet)</a>", `data-label="Nodes" class="n">42<`, "38.0 %", "and 3 more: kubectl plimsoll who", "On 2 nodes workloads wait, and no workload accounts for enough", "1 agents report no contention",
	} {
		assert.True(t, strings.Contains(page, want), want)
	}
	status, one, _ := askController(t, s, "/culprit?owner=batch/ReplicaSet/du&kind=pod&resource=disk")
	assert.Equal(t, http.StatusOK, status)
	for _, want := range []string{"Main culprit on 42 nodes for disk", "<th scope=\"row\">n19</th>", "and 22 more", "shop/db-0", "What to do:"} {
		assert.True(t, strings.Contains(one, want), want)
	}
	status, none, _ := askController(t, s, "/culprit?owner=<script>")
	assert.Equal(t, http.StatusNotFound, status)
	assert.True(t, strings.Contains(none, "Not a culprit now"))
	liar := s.Agents.Culprits.List[1]
	_, lie, _ := askController(t, s, "/culprit?owner="+strings.ReplaceAll(strings.ReplaceAll(liar.Owner, "\x1b", "%1b"), "\u202e", "%E2%80%AE")+"&kind=%3Cscript%3E%1b[2J%E2%80%AE&resource=%3Cscript%3E%1b[2J%E2%80%AE")
	assert.True(t, strings.Contains(lie, "Main culprit on 1 node for"))
	for name, text := range map[string]string{"page": page, "culprit": one, "none": none, "lie": lie} {
		assert.NotContains(t, text, "<script", name)
		assert.NotContains(t, text, "\x1b", name)
		assert.NotContains(t, text, "\u202e", name)
		assert.NotContains(t, text, "ZgotmplZ", name)
	}
	for _, s := range []ControllerState{{}, watching()} {
		status, _, _ := askController(t, s, "/culprit?owner=x")
		assert.Equal(t, http.StatusNotFound, status)
	}
}
