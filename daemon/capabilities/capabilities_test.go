package capabilities

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/capability"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

const (
	admissionV1 = "/apis/admissionregistration.k8s.io/v1"
	admissionV2 = "/apis/admissionregistration.k8s.io/v1beta1"
	gates       = "/apis/plimsoll.dev/v1alpha1"
)

// server answers GETs; an empty answer is Not Found, a number is a status.
type server struct {
	*httptest.Server

	mu      sync.Mutex // guards both
	answers map[string]string
	asked   int // for the version
}

func newServer(t *testing.T, answers map[string]string) *server {
	s := &server{answers: answers}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.URL.Path == "/version" {
			s.asked++
		}
		code, text := http.StatusOK, s.answers[r.URL.Path]
		if _, err := fmt.Sscan(text, &code); err != nil && text == "" {
			code = http.StatusNotFound
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if code == http.StatusOK {
			fmt.Fprint(w, text)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) set(path, answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[path] = answer
}

func (s *server) readings() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *server) client(t *testing.T) rest.Interface {
	t.Helper()
	c, err := corev1client.NewForConfig(&rest.Config{Host: s.URL, QPS: -1})
	require.NoError(t, err)
	return c.RESTClient()
}

func resources(names ...string) string {
	type resource struct {
		Name string `json:"name"`
	}
	var list []resource
	for _, name := range names {
		list = append(list, resource{name}, resource{name + "/status"})
	}
	text, _ := json.Marshal(map[string]any{"kind": "APIResourceList", "resources": list})
	return string(text)
}

// kubernetes of a version with Gates, and with policies of each kind in these versions.
func kubernetes(version string, mutating ...string) map[string]string {
	all := map[string]string{
		"/version": `{"gitVersion":"` + version + `"}`, admissionV1: resources(validating), gates: resources("gates"),
	}
	for _, v := range mutating {
		all["/apis/admissionregistration.k8s.io/"+v] = resources(validating, "mutatingadmissionpolicies")
	}
	return all
}

func cronJob(suspended bool, ago time.Duration) string {
	last := ""
	if ago > 0 {
		last = fmt.Sprintf(`"lastSuccessfulTime":%q`, noon().Add(-ago).Format(time.RFC3339))
	}
	return fmt.Sprintf(`{"spec":{"suspend":%v},"status":{%s}}`, suspended, last)
}

func TestCapabilities(t *testing.T) {
	with := func(all map[string]string, path, answer string) map[string]string { all[path] = answer; return all }
	const lacks = "Kubernetes 1.34.4 serves no MutatingAdmissionPolicy"
	for name, row := range map[string]struct {
		answers map[string]string
		states  []capability.State // of Names
		hide    string             // begins or is in why
	}{
		"1.37":                             {kubernetes("v1.37.1", "v1"), []capability.State{capability.Available, capability.Available, capability.Available, capability.Available}, "MutatingAdmissionPolicy is served as v1"},
		"1.36 with v1beta1 as well":        {kubernetes("v1.36.3", "v1beta1", "v1"), []capability.State{capability.Available, capability.Available, capability.Available, capability.Available}, "served as v1"},
		"1.34 with v1beta1":                {kubernetes("v1.34.4", "v1beta1"), []capability.State{capability.Available, capability.Available, capability.Available, capability.Available}, "served as v1beta1"},
		"1.34":                             {kubernetes("v1.34.4"), []capability.State{capability.Available, capability.Available, capability.Missing, capability.Missing}, lacks + " (v1: from 1.36; v1beta1: 1.34 and 1.35, if enabled), and CronJob plimsoll-release-hidden is not installed"},
		"1.34 and a CronJob that works":    {with(kubernetes("v1.34.4"), jobPath, cronJob(false, 15*time.Minute)), []capability.State{capability.Available, capability.Available, capability.Available, capability.Missing}, "; instead, CronJob plimsoll-release-hidden releases"},
		"1.36 and a CronJob that works":    {with(kubernetes("v1.36.3", "v1"), jobPath, cronJob(false, 15*time.Minute)), []capability.State{capability.Available, capability.Available, capability.Available, capability.Available}, "MutatingAdmissionPolicy is served as v1"},
		"one that has stopped":             {with(kubernetes("v1.34.4"), jobPath, cronJob(false, 15*time.Minute+time.Second)), []capability.State{capability.Available, capability.Available, capability.Missing, capability.Missing}, "has not succeeded since 2026-03-01T11:44:59Z"},
		"one that never ran":               {with(kubernetes("v1.34.4"), jobPath, cronJob(false, 0)), []capability.State{capability.Available, capability.Available, capability.Missing, capability.Missing}, "has not succeeded yet (it runs every 5m0s"},
		"one that is suspended":            {with(kubernetes("v1.34.4"), jobPath, cronJob(true, time.Minute)), []capability.State{capability.Available, capability.Available, capability.Missing, capability.Missing}, "is suspended"},
		"one that may not be read":         {with(kubernetes("v1.34.4"), jobPath, "403"), []capability.State{capability.Available, capability.Available, capability.Unknown, capability.Missing}, "could not be read"},
		"no kind Gate":                     {with(kubernetes("v1.37.1", "v1"), gates, ""), []capability.State{capability.Available, capability.Missing, capability.Available, capability.Available}, ""},
		"1.29":                             {with(kubernetes("v1.29.0"), admissionV1, resources("validatingwebhookconfigurations")), []capability.State{capability.Missing, capability.Missing, capability.Missing, capability.Missing}, ""},
		"v1beta1 of another kind does not": {with(kubernetes("v1.34.4"), admissionV2, resources(validating)), []capability.State{capability.Available, capability.Available, capability.Missing, capability.Missing}, lacks},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, err := Read(t.Context(), newServer(t, row.answers).client(t), noon())
			require.NoError(t, err)
			list := List(&cluster)
			var states []capability.State
			for i, c := range list {
				require.Equal(t, Names()[i], c.Name)
				states = append(states, c.State)
				assert.NotEmpty(t, c.Why)
				assert.Equal(t, c.State == capability.Available, c.Consequence == "", "what is missing has a consequence: %s", c)
			}
			assert.Equal(t, row.states, states)
			assert.Equal(t, row.answers[jobPath] == cronJob(false, 15*time.Minute), cluster.Job.Works, "it may be there although policies are served")
			assert.Contains(t, list[2].Why, row.hide)
		})
	}
}

func TestTested(t *testing.T) {
	list := []capability.Capability{capability.Has(Hold, "served"), capability.Has(Hide, "served")}
	assert.Equal(t, list, Tested(list, ""))
	assert.Equal(t, []capability.Capability{list[0], capability.Lacks(Hide, "no policy", withoutHide)}, Tested(list, "no policy"))
	assert.Equal(t, capability.Available, list[1].State, "others read it")
	list[1] = capability.Lacks(Hide, "not served", withoutHide)
	assert.Equal(t, list, Tested(list, "no policy"), "what the cluster lacks is the better reason")
}

func TestReadFails(t *testing.T) {
	for _, path := range []string{"/version", admissionV1, admissionV2, gates, jobPath} {
		answers := kubernetes("v1.34.4")
		answers[path] = "503"
		_, err := Read(t.Context(), newServer(t, answers).client(t), noon())
		require.ErrorContains(t, err, path, "what could not be read is not missing")
		answers[path] = "{"
		_, err = Read(t.Context(), newServer(t, answers).client(t), noon())
		require.ErrorContains(t, err, path)
	}
}

// log is what a Watcher has logged.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestWatcher(t *testing.T) {
	s := newServer(t, map[string]string{"/version": "503"})
	logged := &log{}
	w := &Watcher{Client: s.client(t), Now: noon, Log: slog.New(slog.NewTextHandler(logged, nil)), Interval: 5 * time.Millisecond}
	assert.Equal(t, Unread("not read yet"), w.List())
	running := make(chan error, 1)
	go func() { running <- w.Run(t.Context()) }()
	become := func(hide capability.State, job bool) {
		t.Helper()
		deadline.Within(t, time.Minute, string(hide), func() error {
			if c := w.List()[2]; c.State != hide || w.JobWorks() != job || c.Why == "not read yet" {
				return fmt.Errorf("%s, job %v", c, w.JobWorks())
			}
			return nil
		})
	}
	become(capability.Unknown, false)
	assert.Contains(t, w.List()[0].Why, "the API server could not be asked: ")
	for path, answer := range kubernetes("v1.35.4") {
		s.set(path, answer)
	}
	become(capability.Missing, false)
	s.set(jobPath, cronJob(false, time.Minute))
	become(capability.Available, true)
	s.set("/version", "503")
	before := s.readings()
	deadline.Within(t, time.Minute, "a few readings fail", func() error {
		if n := s.readings() - before; n < 5 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	become(capability.Available, true) // the last one counts for a while
	s.set(jobPath, "")
	s.set(admissionV1, resources(validating, "mutatingadmissionpolicies"))
	s.set("/version", `{"gitVersion":"v1.36.3"}`)
	become(capability.Available, false) // after an upgrade
	for _, want := range []string{
		`msg="capability is not available" capability=hide state=missing reason="Kubernetes 1.35.4 serves no`,
		`msg="capability is available" capability=hide`, `msg="capability is available" capability=steer`,
	} {
		assert.Equal(t, 1, strings.Count(logged.String(), want), "%s: %s", want, logged)
	}
}
