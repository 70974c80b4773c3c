package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// madeUpProcesses are two, one of which may not be read in full.
func madeUpProcesses(context.Context, string) (probes.ProcessList, error) {
	return probes.ProcessList{
		Found: 300, Seconds: 0.5, Unread: []probes.UnreadProcesses{{Count: 298, Why: "more than 2: chosen at random, other ones each time"}},
		Processes: []probes.Process{
			{PID: 7, Command: "sleep", Threads: 1, RSSBytes: snapshot.Some[uint64](1 << 20), SwapBytes: snapshot.Some[uint64](0), CPUCores: snapshot.Some(0.0), Absent: snapshot.Absent{"io": "permission denied: it needs CAP_SYS_PTRACE"}},
			{
				PID: 4711, Command: "<b>\x1b[2Jevil\u202e" + strings.Repeat("x", 100), RSSBytes: snapshot.Some[uint64](3 << 30), SwapBytes: snapshot.Some[uint64](0), CPUCores: snapshot.Some(1.5),
				ReadBytesPerSecond: snapshot.Some(380e6), WrittenBytesPerSecond: snapshot.Some(0.0),
			},
		},
	}, nil
}

// pageServer serves a state.
func pageServer(s *view.State) *Server {
	at := time.Now()
	if s != nil {
		at = s.Snapshot.Time
	}
	return &Server{
		now: func() time.Time { return at }, State: func() *view.State { return s }, Cluster: func() *view.Cluster { return clusterOf(s) }, Decisions: func() []evict.Decision { return decisionsOf(s) },
		Processes: madeUpProcesses, Log: slog.New(slog.DiscardHandler),
	}
}

func clusterOf(s *view.State) *view.Cluster {
	if s == nil {
		return nil
	}
	return s.Cluster
}

func (s *Server) testMux() *http.ServeMux {
	mux := http.NewServeMux()
	s.restricted(mux)
	return mux
}

// askPage is a page of a server, with its status.
func askPage(t *testing.T, s *Server, path string) (status int, text string, header http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	s.testMux().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String(), w.Header()
}

// named is the path of a workload's page by its name.
func named(name string) string { return "/workload?name=" + url.QueryEscape(name) }

// pagePaths are pages of each kind, by the file of their golden copy.
func pagePaths(s *view.State) map[string]string {
	hostile := scenes.Hostile().Snapshot
	paths := map[string]string{
		"none": "/workload?name=no-such-workload", "search": "/search?q=sda", "search_empty": "/search",
	}
	switch s.Snapshot.Disks[0].Name {
	case hostile.Disks[0].Name:
		return map[string]string{"hostile_workload": named(hostile.Workloads[0].Cgroup), "hostile_device": "/device?name=" + url.QueryEscape(hostile.Disks[0].Name), "hostile_none": named("<script>\x1b" + strings.Repeat("y", 300)), "hostile_search": "/search?q=%3Cscript%3E%1b"}
	case "nvme0n1":
		if len(s.Snapshot.Contention) > 2 {
			paths["workload"], paths["device"] = named("payments-production-eu-west-1/payments-db-postgresql-primary-with-a-name-as-long-as-helm-makes-them-0"), "/device?name=nvme0n1"
			paths["culprit"], paths["nic"] = named("batch-analytics/du-of-the-whole-data-lake-28f7c-x2k9p"), "/device?name=eth0"
		}
	}
	return paths
}

// otherScenes are those that have pages beside the status page in the tests.
func otherScenes() map[string]*view.State {
	return map[string]*view.State{"contended": scenes.Contended(), "hostile": scenes.Hostile()}
}

func TestPagesGolden(t *testing.T) {
	for _, s := range otherScenes() {
		for name, path := range pagePaths(s) {
			_, got, _ := askPage(t, pageServer(s), path)
			file := filepath.Join("testdata", "pages_"+name+".html")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(string(want), got), "%s: run the test with -update if this is meant", name)
		}
	}
}

func TestControllerGolden(t *testing.T) {
	for name, path := range map[string]string{"controller": "/?hold", "controller_culprit": "/culprit?owner=batch/ReplicaSet/du&kind=pod&resource=disk"} {
		s := withCulprits()
		s.Started, s.Agents.Answers = time.Now(), nil // ages are by the wall clock
		_, got, _ := askController(t, s, path)
		file := filepath.Join("testdata", "pages_"+name+".html")
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Empty(t, cmp.Diff(string(want), got), "%s: run the test with -update if this is meant", name)
	}
}

func TestPages(t *testing.T) {
	s := scenes.Contended()
	get := func(path string) (int, string) {
		status, text, _ := askPage(t, pageServer(s), path)
		return status, text
	}
	const db = "payments-production-eu-west-1/payments-db-postgresql-primary-with-a-name-as-long-as-helm-makes-them-0"
	t.Run("every name on the status page leads to a page", func(t *testing.T) {
		_, text := get("/?open")
		links := map[string]bool{}
		for _, n := range elements(t, text) {
			if href := attribute(n, "href"); strings.HasPrefix(href, "workload?") || strings.HasPrefix(href, "device?") {
				links[href] = true
			}
		}
		assert.Greater(t, len(links), 18)
		for href := range links {
			status, _ := get("/" + href)
			assert.Equal(t, http.StatusOK, status, href)
		}
	})
	t.Run("a workload that waits names its culprits, and for how long", func(t *testing.T) {
		status, text := get(named(db))
		assert.Equal(t, http.StatusOK, status)
		for _, want := range []string{"It waits because of others.", "du-of-the-whole-data-lake", "<small>for 2 min 3 s</small>", "device?name=nvme0n1", "Latest decisions"} {
			assert.True(t, strings.Contains(text, want), want)
		}
	})
	t.Run("a culprit names its sufferers", func(t *testing.T) {
		_, text := get(named("batch-analytics/du-of-the-whole-data-lake-28f7c-x2k9p"))
		assert.True(t, strings.Contains(text, "It is the main culprit for Disk nvme0n1, Memory: others wait because of it."))
		assert.True(t, strings.Contains(text, db))
	})
	t.Run("an unknown name is 404, and helps", func(t *testing.T) {
		for _, path := range []string{"/workload?name=du-of", "/device?name=nvme", "/workload", "/device", named(strings.Repeat("a", 5000))} {
			status, text := get(path)
			assert.Equal(t, http.StatusNotFound, status, path)
			assert.True(t, strings.Contains(text, `action="search"`), path)
		}
		_, text := get("/workload?name=du-of")
		assert.True(t, strings.Contains(text, "du-of-the-whole-data-lake"), "what it may be is named")
	})
	t.Run("a workload that was evicted is 404, and its decisions are there", func(t *testing.T) {
		evicted := scenes.Evicted()
		d := decisionsOf(evicted)
		pod, some := d[1].FirstEvicted()
		require.True(t, some)
		evicted.Snapshot.Workloads = nil
		status, text, _ := askPage(t, pageServer(evicted), named(pod.Cgroup))
		assert.Equal(t, http.StatusNotFound, status)
		assert.True(t, strings.Contains(text, "decision "+d[1].ID))
	})
	t.Run("several of one name are to choose from", func(t *testing.T) {
		two := scenes.Calm()
		two.Snapshot.Workloads[1].Name = two.Snapshot.Workloads[0].Name
		status, text, _ := askPage(t, pageServer(two), named(two.Snapshot.Workloads[0].Name))
		assert.Equal(t, http.StatusOK, status)
		assert.True(t, strings.Contains(text, "2 workloads are named"))
	})
	t.Run("before the first sample they say so", func(t *testing.T) {
		for _, path := range []string{"/workload?name=a", "/device?name=a", "/search?q=a"} {
			status, text, _ := askPage(t, pageServer(nil), path)
			assert.Equal(t, http.StatusServiceUnavailable, status)
			assert.True(t, strings.Contains(text, view.WaitingText))
		}
	})
	t.Run("the search finds workloads, devices and decisions", func(t *testing.T) {
		_, text := get("/search?q=NVME0N1")
		assert.True(t, strings.Contains(text, "0 workloads, 2 devices, 1 decision"), text)
		_, text = get("/search?q=cart-service")
		assert.True(t, strings.Contains(text, "13 workloads"))
		_, text = get("/search?q=nothing-of-this-name")
		assert.True(t, strings.Contains(text, "Nothing is named so"))
		status, _ := get("/search?q=" + strings.Repeat("a", maxQuery+1))
		assert.Equal(t, http.StatusBadRequest, status)
	})
}

func TestPagesStale(t *testing.T) {
	s := scenes.Contended()
	contended := scenes.Contended()
	for i := range contended.Levels.Verdicts {
		contended.Levels.Verdicts[i].Level = plugins.Hard
	}
	s.Snapshot.Contention = nil
	disk := scenes.Contended().Levels.Verdicts[2]
	disk.Level, disk.MetLevel = plugins.None, plugins.None
	s.Levels.Verdicts = []plugins.Verdict{disk}
	head := func(s *view.State, late time.Duration) string {
		server := pageServer(s)
		server.now = func() time.Time { return s.Snapshot.Time.Add(late) }
		_, text, _ := askPage(t, server, "/device?name="+disk.Scope)
		assert.Equal(t, late > time.Minute, strings.Contains(text, "all values below are stale"))
		return regexp.MustCompile(`class="card verdict ([a-z]*)"`).FindStringSubmatch(text)[1]
	}
	assert.Equal(t, "none", head(s, 0))
	assert.Equal(t, unknownClass, head(s, time.Hour), "stale values are no all-clear")
	assert.Equal(t, "hard", head(contended, time.Hour), "and do not end a pressure")

	calm := scenes.Calm()
	for late, want := range map[time.Duration]string{0: "none", time.Hour: unknownClass} {
		text, _ := getPage(t, calm, "", late)
		assert.True(t, strings.Contains(text, `class="card verdict `+want+`"`), "the status page, %s late", late)
	}
}

func TestPagesAreSafe(t *testing.T) {
	for scene, s := range otherScenes() {
		for name, path := range pagePaths(s) {
			_, text, h := askPage(t, pageServer(s), path)
			assert.Empty(t, unbalanced(text), name)
			assertLoadsNothing(t, name, text)
			assert.Equal(t, searchPolicy, h.Get("Content-Security-Policy"), name)
			assert.NotContains(t, h.Get("Content-Security-Policy"), "script-src", name)
			assert.Equal(t, "no-store", h.Get("Cache-Control"), name)
			assert.False(t, strings.Contains(text, "<script"), name)
			assert.NotContains(t, text, "\x1b", name)
			assert.NotContains(t, text, "\u202e", name)
			assert.NotContains(t, text, "ZgotmplZ", name)
			assert.NotContains(t, text, "<b>\\x1b", "%s %s: a command is only text", scene, name)
		}
	}
}

// assertUsable: what a keyboard and a screen reader need.
func assertUsable(t *testing.T, name, text string) {
	t.Helper()
	last, h1, skip, main, focusable := 0, 0, false, false, 0
	for _, n := range elements(t, text) {
		switch n.Data {
		case "html":
			assert.Equal(t, "en", attribute(n, "lang"), name)
		case "h1", "h2", "h3", "h4":
			level := int(n.Data[1] - '0')
			assert.LessOrEqual(t, level, last+1, "%s: a heading is left out", name)
			last = level
			if level == 1 {
				h1++
			}
		case "th":
			assert.Contains(t, []string{"col", "row"}, attribute(n, "scope"), "%s: each heading says what it heads", name)
		case "a":
			if focusable++; focusable == 1 {
				skip = attribute(n, "href") == "#main"
			}
		case "main":
			main = attribute(n, "id") == "main"
		case "input":
			assert.Contains(t, text, `for="`+attribute(n, "id")+`"`, "%s: a field has a label", name)
		case "div", "section":
			if attribute(n, "class") == "scroll" {
				assert.Equal(t, "0 region", attribute(n, "tabindex")+" "+attribute(n, "role"), "%s: what scrolls can be reached", name)
				assert.NotEmpty(t, attribute(n, "aria-label"), name)
			}
		}
	}
	assert.Equal(t, 1, h1, name)
	assert.True(t, skip, "%s: the first link skips to the content", name)
	assert.True(t, main, name)
	assert.Contains(t, text, ":focus-visible", name)
}

func TestPagesUsable(t *testing.T) {
	for name, s := range pageScenes() {
		text, _ := getPage(t, s, "?open", 0)
		assertUsable(t, name, withoutScript(text))
	}
	for _, s := range otherScenes() {
		for name, path := range pagePaths(s) {
			_, text, _ := askPage(t, pageServer(s), path)
			assertUsable(t, name, text)
		}
	}
	for name, c := range controllerScenes() {
		for _, path := range []string{"/", "/culprit?owner=batch/ReplicaSet/du&kind=pod&resource=disk", "/culprit?owner=x"} {
			_, text, _ := askController(t, c, path)
			assertUsable(t, name, text)
			assert.Empty(t, unbalanced(text), name)
			assertLoadsNothing(t, name, text)
		}
	}
}

// luminance of a colour, and the contrast of two, as WCAG 2.2 defines them.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	var r, g, b int
	_, err := fmt.Sscanf(hex, "#%02x%02x%02x", &r, &g, &b)
	require.NoError(t, err, hex)
	linear := func(c int) float64 {
		v := float64(c) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(r) + 0.7152*linear(g) + 0.0722*linear(b)
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// colours of the light and of the dark scheme, by name.
func colours(t *testing.T) (light, dark map[string]string) {
	t.Helper()
	css, err := os.ReadFile("style.html")
	require.NoError(t, err)
	blocks := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(string(css), -1)
	require.Len(t, blocks, 2)
	of := func(block string) map[string]string {
		m := map[string]string{}
		for _, c := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(block, -1) {
			m[c[1]] = c[2]
		}
		return m
	}
	light, dark = of(blocks[0][1]), of(blocks[1][1])
	require.Len(t, light, 18)
	require.Len(t, dark, 18)
	return light, dark
}

func TestContrast(t *testing.T) {
	css, err := os.ReadFile("style.html")
	require.NoError(t, err)
	assert.Empty(t, regexp.MustCompile(`(?m)^[^-\n]*[^-](?:color|background|fill|stroke): #`).FindAllString(string(css), -1), "each colour has a name")
	assert.NotRegexp(t, `opacity: 0?\.`, string(css), "nothing is made pale by opacity")
	light, dark := colours(t)
	text := map[string][]string{ // what is written in a colour, on which ones
		"ink": {"bg", "card", "soft-bg"}, "soft-ink": {"bg", "card", "track", "soft-bg"}, "link": {"bg", "card", "soft-bg"},
		"none": {"none-bg"}, "soft": {"soft-bg", "card", "bg"}, "hard": {"hard-bg", "card", "bg", "soft-bg"},
	}
	drawn := map[string][]string{ // and drawn
		"fill": {"track"}, "soft": {"track"}, "hard": {"track"}, "waits": {"track"}, "some": {"card"}, "full": {"card"}, "focus": {"bg", "card", "soft-bg"}, "soft-ink": {"bg", "card"},
	}
	for scheme, c := range map[string]map[string]string{"light": light, "dark": dark} {
		for least, pairs := range map[float64]map[string][]string{4.5: text, 3: drawn} {
			for fore, backs := range pairs {
				for _, back := range backs {
					require.NotEmpty(t, c[fore], fore)
					require.NotEmpty(t, c[back], back)
					assert.GreaterOrEqual(t, contrast(t, c[fore], c[back]), least, "%s: %s on %s", scheme, fore, back)
				}
			}
		}
	}
	assert.InDelta(t, 21, contrast(t, "#000000", "#ffffff"), 1e-9)
}

// fullNode has 250 pods that all use and wait for the same disk, each of them named by a
// rule, and as many network devices.
func fullNode() *view.State {
	s := scenes.Contended()
	pattern := s.Snapshot.Workloads[0]
	for _, w := range s.Snapshot.Workloads {
		if w.PodUID != "" {
			pattern = w
		}
	}
	var candidates []plugins.Candidate
	for i := range 250 {
		w := pattern
		w.PodUID = fmt.Sprintf("%08x-0000-4000-8000-0000000000aa", i)
		w.Cgroup = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(w.PodUID, "-", "_") + ".slice"
		w.Name = fmt.Sprintf("production-namespace-%03d/a-deployment-with-a-name-as-long-as-people-make-them-66b8d9f7c4-%05d", i, i)
		s.Snapshot.Workloads = append(s.Snapshot.Workloads, w)
		candidates = append(candidates, plugins.Candidate{Cgroup: w.Cgroup, Name: w.Name, PodUID: w.PodUID, Relief: 1 << 30, Unit: "bytes", Why: "working set 1.0 GiB, 300 MiB above its request"})
		n := s.Snapshot.NICs[0]
		n.Name, n.Physical, n.Layer = fmt.Sprintf("veth%08x", i), false, snapshot.LayerStacked
		s.Snapshot.NICs = append(s.Snapshot.NICs, n)
		d := s.Snapshot.Disks[0]
		d.Name, d.Number = fmt.Sprintf("nbd%d", i), fmt.Sprintf("43:%d", i)
		if i < 40 {
			s.Snapshot.Disks = append(s.Snapshot.Disks, d)
		}
	}
	for i := range s.Levels.Verdicts {
		s.Levels.Verdicts[i].Candidates = candidates
	}
	return s
}

// maxPage is what a page may have at most, in bytes.
const maxPage = 200_000

func TestPageSize(t *testing.T) {
	s := fullNode()
	server := pageServer(s)
	server.Processes = func(ctx context.Context, cgroup string) (probes.ProcessList, error) {
		l, err := madeUpProcesses(ctx, cgroup)
		for i := range probes.MaxProcesses {
			p := l.Processes[1]
			p.PID = 1_000_000 + i
			l.Processes = append(l.Processes, p)
		}
		return l, err
	}
	last := s.Snapshot.Workloads[len(s.Snapshot.Workloads)-1].Cgroup
	for _, path := range []string{"/", "/?open", named(last), "/device?name=nvme0n1", "/search?q=production", "/search?q=e", "/workload?name=e"} {
		_, text, _ := askPage(t, server, path)
		t.Logf("%s: %d bytes", path, len(text))
		assert.Less(t, len(text), maxPage, path)
		assert.Greater(t, len(text), 15_000, path)
	}
	for name, c := range controllerScenes() {
		_, text, _ := askController(t, c, "/")
		t.Logf("controller %s: %d bytes", name, len(text))
		assert.Less(t, len(text), maxPage, name)
	}
}

func TestPageProcesses(t *testing.T) {
	s := scenes.Contended()
	server := pageServer(s)
	path := named("velero/backup-nightly-20260301-node-agent-7xk2v")
	get := func() string {
		t.Helper()
		status, text, _ := askPage(t, server, path)
		assert.Equal(t, http.StatusOK, status)
		return text
	}
	t.Run("the busiest first, and what was not read is told", func(t *testing.T) {
		text := get()
		assert.Less(t, strings.Index(text, "4711"), strings.Index(text, ">sleep<"))
		assert.True(t, strings.Contains(text, "300 processes found, 2 read; rates over 500 ms"))
		assert.True(t, strings.Contains(text, "298 not read: more than 2"))
		assert.True(t, strings.Contains(text, `title="permission denied: it needs CAP_SYS_PTRACE"`))
		assert.True(t, strings.Contains(text, `&lt;b&gt;\x1b[2Jevil\u202e`+strings.Repeat("x", 64-len(`<b>\x1b[2Jevil\u202e`))+"…"), "a hostile name is only text, and short")
	})
	t.Run("no other page reads any", func(t *testing.T) {
		server.Processes = func(context.Context, string) (probes.ProcessList, error) {
			panic("read by a page that is not the workload's")
		}
		for _, other := range []string{"/", "/device?name=nvme0n1", "/search?q=velero", "/workload?name=no-such", "/workload?name=e"} {
			_, _, _ = askPage(t, server, other)
		}
	})
	t.Run("only the cgroup of a known workload is read", func(t *testing.T) {
		asked := ""
		server.Processes = func(_ context.Context, cgroup string) (probes.ProcessList, error) {
			asked = cgroup
			return probes.ProcessList{}, nil
		}
		_, _, _ = askPage(t, server, named("/../../../etc"))
		assert.Empty(t, asked)
		get()
		assert.True(t, strings.HasPrefix(asked, "/kubepods.slice/"), asked)
	})
	t.Run("an error is told", func(t *testing.T) {
		server.Processes = func(context.Context, string) (probes.ProcessList, error) {
			return probes.ProcessList{}, errors.New("find cgroups: \x1bno")
		}
		assert.True(t, strings.Contains(get(), `Not read: find cgroups: \x1bno`))
	})
	t.Run("one reading at a time; one that hangs holds no page up", func(t *testing.T) {
		server := pageServer(s)
		release, began := make(chan struct{}), make(chan struct{})
		server.Processes = func(context.Context, string) (probes.ProcessList, error) {
			close(began) // a second reading would panic
			<-release
			return probes.ProcessList{}, nil
		}
		read := func(timeout time.Duration) *pageProcesses {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			return server.processes.read(ctx, server.Processes, "/a")
		}
		first := make(chan *pageProcesses)
		go func() { first <- read(50 * time.Millisecond) }()
		<-began
		assert.Contains(t, (<-first).Problem, "did not answer")
		assert.Contains(t, read(time.Millisecond).Problem, "another reading has not ended")
		close(release)
	})
	t.Run("what was read when the time ended is shown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := pageServer(s)
			server.Processes = func(ctx context.Context, cgroup string) (probes.ProcessList, error) {
				<-ctx.Done()
				time.Sleep(processesMargin / 2) // of the bubble's clock: for what it had begun
				return madeUpProcesses(ctx, cgroup)
			}
			began := time.Now()
			p := server.processes.read(t.Context(), server.Processes, "/a")
			assert.Empty(t, p.Problem)
			assert.Len(t, p.Shown, 2)
			assert.Equal(t, processesTimeout+processesMargin/2, time.Since(began))
		})
	})
	t.Run("a reading has its whole time once it is its turn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := pageServer(s)
			release := make(chan struct{})
			server.Processes = func(context.Context, string) (probes.ProcessList, error) {
				<-release
				return probes.ProcessList{}, nil
			}
			server.processes.turn() <- struct{}{} // another reading, for almost as long as a page waits
			time.AfterFunc(turnTimeout-time.Millisecond, func() { <-server.processes.turn() })
			began := time.Now()
			assert.Contains(t, server.processes.read(t.Context(), server.Processes, "/a").Problem, "did not answer within 3.5 s")
			assert.Equal(t, turnTimeout-time.Millisecond+processesTimeout+processesMargin, time.Since(began))
			assert.Contains(t, server.processes.read(t.Context(), server.Processes, "/a").Problem, "another reading has not ended", "one that hangs keeps the place")
			close(release)
		})
	})
	t.Run("an agent that cannot read them has no such part", func(t *testing.T) {
		server.Processes = nil
		assert.False(t, strings.Contains(get(), "<h2>Processes"))
	})
}

func TestPageRivals(t *testing.T) {
	text, _ := getPage(t, besideKatalyst(), "", 0)
	_, below, found := strings.Cut(text, "<h2>Outer plugins that another process asks too</h2>")
	require.True(t, found)
	for _, want := range []string{"/var/lib/katalyst/plugin-socks", "4711", `katalyst-agent\x1b[2J`, "asked too, as a dry run (plugins.beside: report)", "katalyst.md#run-both-for-a-week"} {
		assert.True(t, strings.Contains(below, want), want)
	}
	without, _ := getPage(t, scenes.Calm().WithOuter(&view.OuterPlugins{Beside: "exclusive"}), "", 0)
	assert.False(t, strings.Contains(without, "another process asks"))
}

func TestPageWhatToDo(t *testing.T) {
	for scene, want := range map[string][]string{
		"memory_hard": {"alerts.md#plimsollpressurehard"},
		"contended":   {"alerts.md#plimsollpressuresoft", "Limit the IO of batch-analytics/du-of-the-whole-data-lake-28f7c-x2k9p"},
		"absent":      {"alerts.md#plimsollconfigrejected", "troubleshooting.md#by-the-row-of-plimsoll-doctor", "reading.md#when-a-value-is-absent"},
		"deaf":        {"alerts.md#plimsollheartbeatfails"},
	} {
		text, _ := getPage(t, pageScenes()[scene], "", 0)
		for _, w := range want {
			assert.True(t, strings.Contains(text, w), "%s: %s", scene, w)
		}
	}
	calm, _ := getPage(t, scenes.Calm(), "", 0)
	assert.False(t, strings.Contains(calm, "alerts.md"), "without a finding nothing is to be done about pressure")
}
