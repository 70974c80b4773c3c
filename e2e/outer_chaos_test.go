package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

const (
	chaosRound, chaosDeadline = time.Second, time.Second
	// answersCount is for how long a plugin's last answer says something.
	answersCount = 15 * time.Second
)

// chaos is twenty plugins of which half behave badly.
type chaos struct {
	*world
	dir, logs, program string
	seed               uint64
	stop               context.CancelFunc
	running            sync.WaitGroup
	crowd              map[string]string // mode by plugin
	away               [][2]time.Time    // when the API server was
}

func crowded() map[string]string {
	crowd := map[string]string{}
	for i := range 10 {
		crowd[fmt.Sprint("honest-", i)] = "honest"
	}
	for i, mode := range []string{"hang", "hang", "mute", "crash", "crash", "lie", "lie", "flood", "again", "garbage"} {
		crowd[fmt.Sprint(mode, "-", i)] = mode
	}
	return crowd
}

// Twenty plugins, half of them rogues, pods that come and go, an API server that
// is restarted, in the long form twice.
func roguePlugins(t *testing.T, cl *cluster.Cluster) {
	needsRoot(t)
	length, seed := 20*time.Second, uint64(1)
	if os.Getenv("PLIMSOLL_LONG") != "" {
		length, seed = 10*time.Minute, uint64(time.Now().UnixNano())
	}
	if s, err := strconv.ParseUint(os.Getenv("PLIMSOLL_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("%s, PLIMSOLL_SEED=%d", length, seed)
	c := newChaos(t, cl, seed)
	guards := c.guarded()
	for i := range 6 {
		c.deploy(fmt.Sprint("fair-", i), 1, nil)
	}
	for i := range 6 {
		c.pod(fmt.Sprint("fair-", i))
	}
	c.start()
	before := c.agent.holds(t)
	begun, clock := time.Now(), deadline.Start()
	c.release()
	c.weatherTheStorm(length)
	worst := c.agent.holds(t)
	c.stop()
	c.running.Wait()
	ended := time.Now()

	c.onTime(begun, ended, clock)
	c.justified(begun)
	for name, uid := range guards {
		assert.Equal(t, uid, string(c.pod(name).UID), "%s may never be evicted", name)
	}
	require.NoError(t, os.RemoveAll(c.dir)) // the sockets of those that were killed
	eventually(t, "nothing is left of the plugins in the agent", func() error {
		if now := c.agent.holds(t); now.fds > before.fds+5 || now.goroutines > before.goroutines+10 {
			return fmt.Errorf("before %+v, at the end of it %+v, now %+v", before, worst, now)
		}
		return nil
	})
	after := c.agent.holds(t)
	t.Logf("before %+v, at the end of it %+v, after %+v", before, worst, after)
	assert.Less(t, after.rss, before.rss+100<<20) // what liars say is not kept
}

func newChaos(t *testing.T, cl *cluster.Cluster, seed uint64) *chaos {
	c := &chaos{world: startWorldOf(t, cl), seed: seed, crowd: crowded(), logs: t.TempDir(), program: rogue(t)}
	c.dir = filepath.Join(filepath.Dir(c.state), "plugins")
	text, err := os.ReadFile(c.config)
	require.NoError(t, err)
	write(t, c.config, string(text)+fmt.Sprintf("  deadline: %[1]s\n  callTimeout: %[1]s\nweb: {pprof: true}\n", chaosDeadline))
	return c
}

// guarded are pods that may never be evicted.
func (c *chaos) guarded() map[string]string {
	c.daemonSet("guard-daemonset", 1)
	c.bare("guard-bare", 1)
	c.static("guard-static", 1)
	c.deploy("guard-placed", 1, func(p *corev1.PodTemplateSpec) { p.Spec.NodeName = c.node })
	uids := map[string]string{}
	for _, app := range []string{"guard-daemonset", "guard-bare", "guard-static", "guard-placed"} {
		uids[app] = string(c.pod(app).UID)
	}
	return uids
}

func (c *chaos) pod(app string) corev1.Pod { return c.world.running(app) }

// release starts all plugins; one that ends comes back.
func (c *chaos) release() {
	ctx, cancel := context.WithCancel(c.t.Context())
	c.stop = cancel
	c.t.Cleanup(func() { cancel(); c.running.Wait() })
	for i, name := range slices.Sorted(maps.Keys(c.crowd)) {
		c.running.Go(func() {
			for n := range uint64(1 << 20) {
				cmd := exec.CommandContext(ctx, c.program, "-mode", c.crowd[name], "-name", name, "-dir", c.dir, "-log", c.log(name),
					"-seed", fmt.Sprint(c.seed+uint64(i)<<20+n))
				_ = cmd.Run() // it was made to end
				select {
				case <-ctx.Done():
					return
				case <-time.After(200 * time.Millisecond):
				}
			}
		})
	}
}

func (c *chaos) log(name string) string { return filepath.Join(c.logs, name) }

// weatherTheStorm lets the time pass: pods go, and the API server is restarted
// in equal parts of it.
func (c *chaos) weatherTheStorm(length time.Duration) {
	random := rand.New(rand.NewPCG(c.seed, 1))
	api := c.c.APIServers[0]
	begun, restarts, all := time.Now(), 0, live.Times(1, 2)
	for time.Since(begun) < length || restarts < all {
		if restarts < all && time.Since(begun) > time.Duration(restarts+1)*length/time.Duration(all+1) {
			restarts++
			killed := time.Now()
			require.NoError(c.t, api.Kill())
			require.NoError(c.t, api.Start())
			require.NoError(c.t, api.WaitReady(c.t.Context()))
			c.away = append(c.away, [2]time.Time{killed, time.Now()})
		}
		for _, p := range c.pods(fmt.Sprint("fair-", random.IntN(6))) {
			_ = c.c.Client.CoreV1().Pods(p.Namespace).Delete(c.t.Context(), p.Name, metav1.DeleteOptions{}) // it may have gone
		}
		select {
		case <-c.t.Context().Done():
		case <-time.After(time.Duration(1+random.IntN(3)) * time.Second):
		}
	}
}

// said is one answer of a plugin, as it wrote it down.
type said struct {
	Time  time.Time `json:"time"`
	Asked string    `json:"asked"`
	Named []string  `json:"named"`
}

func (c *chaos) said(name string) (list []said) {
	c.t.Helper()
	f, err := os.Open(c.log(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(c.t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var s said
		if json.Unmarshal(lines.Bytes(), &s) == nil { // but what was cut when it was ended
			list = append(list, s)
		}
	}
	return list
}

// onTime: the honest are asked in every round, however long the others take. A
// round in which the API server is away also waits for its own calls to that,
// and twenty processes more on a busy machine make some late: nearly all count.
func (c *chaos) onTime(begun, ended time.Time, clock *deadline.Clock) {
	var gaps, away []time.Duration
	for name, mode := range c.crowd {
		if mode != "honest" {
			continue
		}
		last := begun
		for _, s := range append(c.said(name), said{Time: ended, Asked: "threshold"}) {
			if s.Asked != "threshold" {
				continue
			}
			if gap := s.Time.Sub(last); c.wasAway(last, s.Time) {
				away = append(away, gap)
			} else {
				gaps = append(gaps, gap)
			}
			last = s.Time
		}
	}
	slices.Sort(gaps)
	nearly, longest := gaps[len(gaps)*95/100], gaps[len(gaps)-1]
	const promise = chaosRound + chaosDeadline
	c.t.Logf("the honest were asked %d times, 95 %% within %s of the time before, at the longest %s apart, and %s while the API server was away (a round of %s and its deadline of %s)",
		len(gaps), nearly.Round(time.Millisecond), longest.Round(time.Millisecond), slices.Max(away).Round(time.Millisecond), chaosRound, chaosDeadline)
	assert.Less(c.t, nearly, clock.Stretch(2*promise))
	assert.Less(c.t, longest, clock.Stretch(patience/2))
	assert.Less(c.t, slices.Max(away), clock.Stretch(patience/2))
}

// wasAway says whether the API server was, at some time between two.
func (c *chaos) wasAway(from, to time.Time) bool {
	return slices.ContainsFunc(c.away, func(a [2]time.Time) bool { return from.Before(a[1]) && to.After(a[0]) })
}

// justified: nobody was evicted whom no plugin had named a moment before while
// its threshold was hard.
func (c *chaos) justified(begun time.Time) {
	named := map[string][]time.Time{}
	for name := range c.crowd {
		for _, s := range c.said(name) {
			for _, pod := range s.Named {
				named[pod] = append(named[pod], s.Time)
			}
		}
	}
	events, err := c.c.AuditEvents()
	require.NoError(c.t, err)
	evictions := 0
	for _, e := range events {
		if e.Subresource != "eviction" || e.Verb != "create" || e.Namespace != c.namespace {
			continue
		}
		evictions++
		var why bool
		for _, at := range named[e.Name] {
			since := e.Time.Sub(at)
			why = why || since > -time.Second && since < answersCount+2*chaosRound
		}
		assert.True(c.t, why, "%s was asked to go at %s (%d), and named at %v", e.Name, e.Time, e.Code, named[e.Name])
		assert.True(c.t, strings.HasPrefix(e.Name, "fair"), e.Name)
	}
	c.t.Logf("%d evictions were asked for, %d pods were named", evictions, len(named))
	assert.Positive(c.t, evictions, "the honest were heard")
}

// holdings are what a process holds.
type holdings struct {
	fds, goroutines int
	rss             int // bytes
}

// holds of the agent, its goroutines by its own word.
func (a *agent) holds(t *testing.T) (h holdings) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", a.cmd.Process.Pid)
	fds, err := os.ReadDir(proc + "fd")
	require.NoError(t, err)
	status, err := os.ReadFile(proc + "status")
	require.NoError(t, err)
	kib := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(t, kib)
	h.fds = len(fds)
	h.rss, err = strconv.Atoi(string(kib[1]))
	require.NoError(t, err)
	h.rss <<= 10
	_, err = fmt.Sscanf(a.mustGet("/debug/pprof/goroutine?debug=1"), "goroutine profile: total %d", &h.goroutines)
	require.NoError(t, err)
	return h
}
