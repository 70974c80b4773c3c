package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/clock"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

// soakShort is how long it is in make e2e; make soak says for how long otherwise.
// In one that is shorter than soakLong plugins take the same names again: what is
// bounded is then full when the judged half begins.
const (
	soakShort = 2 * time.Minute
	soakLong  = 30 * time.Minute
)

// soak is a node that is never left in peace, and a controller.
type soak struct {
	*world
	controller *agent
	length     time.Duration
	begun      time.Time
	random     *rand.Rand
	seed       atomic.Uint64 // of plugins

	guards map[string]string // the UID of each pod that may not go, by its app
	guard  map[string]string // the app of each, by the pod's name

	dir, logs, program string
	stop               context.CancelFunc
	running            sync.WaitGroup // the plugins and what they are started by

	beat     *beatWatch
	figures  *figures
	pressing []span // when there was a shortage
	away     []span // when the API server was
	steps    int    // of clocks
	churned  int    // pods that the test deleted
	apps     int    // Deployments that it has made
	oldest   int    // the first that it has not deleted
	report   []string
}

type span struct{ from, to time.Time }

// How often what happens. A Node that is pressed is tainted, so that pods do not
// come back to it: between shortages there is time for them to.
const (
	soakPress    = 40 * time.Second // a shortage begins
	soakPressed  = 6 * time.Second  // and is so long
	soakChurn    = 4 * time.Second  // a pod is deleted
	soakDeploy   = 12 * time.Second // a Deployment comes and another goes
	soakRestart  = 10 * time.Minute // the API server is killed
	soakStep     = 7 * time.Minute  // clocks are set
	soakTurn     = time.Minute      // a rogue is followed by one of another kind
	soakRest     = 90               // rounds in which an honest plugin is content
	soakDeployed = 6                // Deployments there are
)

// The built agent and the built controller on a real control plane, and what a
// cluster does to them in its worst hours, for as long as PLIMSOLL_SOAK says.
func TestSoak(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	length := soakShort
	text := os.Getenv("PLIMSOLL_SOAK")
	if text == "" {
		live.Long(t, "two minutes of a node's worst hours")
	} else {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err, "PLIMSOLL_SOAK")
		require.GreaterOrEqual(t, length, soakShort, "PLIMSOLL_SOAK")
	}
	s := newSoak(t, length)
	s.guarded()
	for range soakDeployed {
		s.deployAnother()
	}
	s.deploy("fair-presser-0", 150, nil)
	s.deploy("fair-presser-1", 150, nil)
	for _, app := range []string{"fair-presser-0", "fair-presser-1"} {
		s.world.running(app)
	}
	s.start()
	s.release()
	s.run()
	s.stop()
	s.running.Wait()
	s.beat.end()
	s.judge()
}

func newSoak(t *testing.T, length time.Duration) *soak {
	t.Helper()
	w, b := governed(t, cluster.New(t, cluster.Options{Audit: true}))
	s := &soak{
		world: w, length: length, random: rand.New(rand.NewPCG(1, 1)), dir: pluginDir(t), logs: t.TempDir(), program: rogue(t),
		guards: map[string]string{}, guard: map[string]string{},
	}
	w.rules = fmt.Sprintf("  dirs: [%s]\n  deadline: %s\nweb: {pprof: true}\n", s.dir, chaosDeadline)
	w.configure()
	w.prepare = func(a *agent) { a.settable = clock.Supported }
	s.edit(w.config, "state: {", "state: {decisions: 10, ") // so that the ring is soon full
	s.edit(b.config, "agents:", "web: {pprof: true}\nagents:")
	s.controller = b.controller()
	s.controller.settable = clock.Supported
	s.controller.start()
	return s
}

// edit a configuration.
func (s *soak) edit(path, old, text string) {
	s.t.Helper()
	all, err := os.ReadFile(path)
	require.NoError(s.t, err)
	require.Contains(s.t, string(all), old)
	write(s.t, path, strings.Replace(string(all), old, text, 1))
}

// guarded are the pods that nobody may evict, each large enough to be worth it.
func (s *soak) guarded() {
	const mib = 60
	s.daemonSet("guard-daemonset", mib)
	s.bare("guard-bare", mib)
	s.static("guard-static", mib)
	s.deploy("guard-placed", mib, func(p *corev1.PodTemplateSpec) { p.Spec.NodeName = s.node })
	s.deploy("guard-critical", mib, func(p *corev1.PodTemplateSpec) { p.Spec.PriorityClassName = "system-cluster-critical" })
	s.deploy("guard-budget", mib, nil)
	s.budget("guard-budget")
	there := *s.world
	there.node += "-b"
	s.c.Node(s.t, there.node)
	there.deploy("guard-elsewhere", mib, nil)
	for _, app := range []string{"daemonset", "bare", "static", "placed", "critical", "budget", "elsewhere"} {
		app = "guard-" + app
		p := s.world.running(app)
		s.guards[app], s.guard[p.Name] = string(p.UID), app
	}
}

// deployAnother makes a Deployment of a small pod, under a name that there was not.
func (s *soak) deployAnother() {
	s.deploy(fmt.Sprint("fair-", s.apps), 1, nil)
	s.apps++
}

// release starts the plugins: seven that are honest, and three that are not, which
// are followed by others of another kind and name. One that ends comes back.
func (s *soak) release() {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.stop = cancel
	s.t.Cleanup(func() { cancel(); s.running.Wait() })
	for i := range 7 {
		s.running.Go(func() { s.plugin(ctx, "honest", fmt.Sprint("honest-", i)) })
	}
	kinds := []string{"hang", "lie", "crash", "flood", "mute", "garbage", "again"}
	names := len(kinds)
	if s.length >= soakLong {
		names *= 100
	}
	for i := range 3 {
		s.running.Go(func() {
			for n := i; ctx.Err() == nil; n += 3 {
				turn, over := context.WithTimeout(ctx, min(soakTurn, s.length/6))
				kind := kinds[n%len(kinds)]
				s.plugin(turn, kind, fmt.Sprint(kind, "-", n%names))
				over()
			}
		})
	}
}

// plugin runs one, again and again, until ctx ends.
func (s *soak) plugin(ctx context.Context, kind, name string) {
	seed := s.seed.Add(1 << 32)
	for n := 0; ctx.Err() == nil; n++ {
		cmd := exec.CommandContext(ctx, s.program, "-mode", kind, "-name", name, "-dir", s.dir, "-log", filepath.Join(s.logs, name),
			"-seed", fmt.Sprint(seed+uint64(n)), "-rest", fmt.Sprint(soakRest))
		_ = cmd.Run() // it was made to end
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	_ = os.Remove(filepath.Join(s.dir, name+".sock")) // what was killed leaves its own
}

// act is what happens again and again.
type act struct {
	every time.Duration
	next  time.Time
	do    func()
}

// run everything for as long as the soak is.
func (s *soak) run() {
	s.begun = time.Now()
	s.beat = s.watchBeats()
	s.figures = s.newFigures()
	sample := 2 * time.Second
	if s.length >= soakLong {
		sample = 5 * time.Second
	}
	acts := []*act{
		{every: sample, do: s.figures.sample},
		{every: soakPress, do: s.shortage},
		{every: soakChurn, do: s.churn},
		{every: soakDeploy, do: s.replace},
		{every: min(soakStep, s.length/5), do: s.step},
		{every: min(soakRestart, s.length), do: s.restart},
		{every: time.Minute, do: s.tell},
	}
	for _, a := range acts {
		a.next = s.begun.Add(a.every / 2)
	}
	for end := s.begun.Add(s.length); time.Now().Before(end); {
		first := acts[0]
		for _, a := range acts {
			if a.next.Before(first.next) {
				first = a
			}
		}
		select {
		case <-s.t.Context().Done():
			return
		case <-s.agent.ended:
			require.Fail(s.t, "the agent ended", s.agent.cmd.ProcessState)
		case <-s.controller.ended:
			require.Fail(s.t, "the controller ended", "%s\n%s", s.controller.cmd.ProcessState, s.controller.stderr.String())
		case <-time.After(time.Until(first.next)):
			first.do()
			first.next = first.next.Add(first.every)
			if now := time.Now(); first.next.Before(now) { // what was missed is not made up for
				first.next = now
			}
		}
	}
	s.press(false)
}

func (s *soak) shortage() {
	now := time.Now()
	s.pressing = append(s.pressing, span{now, now.Add(soakPressed)})
	s.press(true)
	time.AfterFunc(soakPressed, func() { s.press(false) })
}

// churn deletes a pod of those that may go.
func (s *soak) churn() {
	app := fmt.Sprint("fair-", s.oldest+s.random.IntN(s.apps-s.oldest))
	pods, err := s.c.Client.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	require.NoError(s.t, err)
	for _, p := range pods.Items {
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
			continue
		}
		if s.c.Client.CoreV1().Pods(s.namespace).Delete(s.t.Context(), p.Name, metav1.DeleteOptions{}) == nil { // it may have gone
			s.churned++
		}
	}
}

// replace the oldest Deployment by a new one.
func (s *soak) replace() {
	s.deployAnother()
	s.undeploy(fmt.Sprint("fair-", s.oldest))
	s.oldest++
}

// step sets the clocks of both programs: ahead, right, behind, right, the
// controller's two steps later. Not by an hour back: before it was made a
// certificate is not valid.
func (s *soak) step() {
	if !clock.Supported {
		return
	}
	ahead := []time.Duration{time.Hour, 0, -50 * time.Minute, 0}
	require.NoError(s.t, s.agent.clock.Set(ahead[s.steps%4]))
	require.NoError(s.t, s.controller.clock.Set(ahead[(s.steps+2)%4]))
	s.figures.event(fmt.Sprintf("clocks: agent %s, controller %s", ahead[s.steps%4], ahead[(s.steps+2)%4]))
	s.steps++
}

// restart the API server as if it had crashed.
func (s *soak) restart() {
	api, killed := s.c.APIServers[0], time.Now()
	s.beat.down()
	require.NoError(s.t, api.Kill())
	require.NoError(s.t, api.Start())
	require.NoError(s.t, api.WaitReady(s.t.Context()))
	s.beat.up()
	s.away = append(s.away, span{killed, time.Now()})
	s.figures.event("API server restarted, away for " + time.Since(killed).Round(time.Millisecond).String())
}

func (s *soak) tell() {
	s.t.Logf("%s: %s", time.Since(s.begun).Round(time.Second), s.figures.last())
}

// judge what was seen, and print it.
func (s *soak) judge() {
	t := s.t
	steady, after := s.beat.longest()
	evictions, forbidden := s.evictions()
	s.say("%s", s.figures.judge())
	s.say("%d API server restarts, %d clock steps of each program (STAND-IN: its own reading of CLOCK_REALTIME is set, the machine's clock, the API server's and files' times are not), %d shortages (STAND-IN: files of memory), %d running pods deleted, %d Deployments made",
		len(s.away), s.steps, len(s.pressing), s.churned, s.apps)
	s.say("longest gap between two renewals of the agent's Lease (interval 1 s, duration 4 s): %s; from when the API server was back until the first: %s (as an idle machine would have counted, which is judged: %s, %s)",
		steady.watch.Round(time.Millisecond), after.watch.Round(time.Millisecond), steady.fair.Round(time.Millisecond), after.fair.Round(time.Millisecond))
	s.say("evictions by the API server's audit log: %s; forbidden: %d", evictions, len(forbidden))
	s.say("processor time: agent %s, controller %s in %s", processorTime(s.agent.cmd.Process.Pid), processorTime(s.controller.cmd.Process.Pid), s.length)
	write(t, filepath.Join("..", "bin", "soak.txt"), strings.Join(s.report, "\n")+"\n")
	assert.Empty(t, forbidden, "evictions that nobody may ask for")
	assert.Positive(t, evictions.granted, "somebody went")
	assert.Positive(t, evictions.shortage, "somebody went for a shortage")
	assert.Less(t, steady.fair, 4*time.Second, "who waits for the Lease's duration takes the agent for dead")
	assert.Positive(t, after.watch, "renewed after a restart of the API server")
	assert.Less(t, after.fair, 31*time.Second, "the longest pause before a new connection, and an interval")
	assert.NotEmpty(t, s.away)
	assert.True(t, s.steps > 0 || !clock.Supported)
	assert.Positive(t, s.churned)
	for app, uid := range s.guards {
		pods := s.pods(app)
		assert.True(t, len(pods) == 1 && string(pods[0].UID) == uid && pods[0].DeletionTimestamp == nil, "%s may never go", app)
	}
}

// say a line of the report, which stands in bin/soak.txt in the end.
func (s *soak) say(format string, args ...any) {
	s.report = append(s.report, fmt.Sprintf(format, args...))
	s.t.Log(s.report[len(s.report)-1])
}

// departures are the evictions of the audit log.
type departures struct{ asked, granted, budget, shortage int }

func (e departures) String() string {
	return fmt.Sprintf("%d asked for, %d granted (%d while memory was short), %d held back by a disruption budget", e.asked, e.granted, e.shortage, e.budget)
}

// evictions that the API server was asked for, and those of them that were
// forbidden: of a pod that may not go, or of one that nothing spoke against at the
// time. To ask for a pod behind a disruption budget is how that is found out.
func (s *soak) evictions() (n departures, forbidden []string) {
	events, err := s.c.AuditEvents()
	require.NoError(s.t, err)
	named := s.named()
	for _, e := range events {
		if e.Subresource != "eviction" || e.Verb != "create" {
			continue
		}
		n.asked++
		short := s.wasShort(e.Time)
		if e.Code < 300 {
			n.granted++
			if short {
				n.shortage++
			}
		}
		switch {
		case s.guard[e.Name] == "guard-budget" && e.Code == 429:
			n.budget++
		case !strings.HasPrefix(e.Name, "fair-"):
			forbidden = append(forbidden, fmt.Sprintf("%s at %s: it is guarded, and the answer was %d", e.Name, e.Time, e.Code))
		case !short && !wasNamed(named[e.Name], e.Time):
			forbidden = append(forbidden, fmt.Sprintf("%s at %s: there was no shortage and no plugin had named it: %v", e.Name, e.Time, named[e.Name]))
		}
	}
	return n, forbidden
}

// wasShort: a decision stands for some rounds, and so does what is asked of the
// controller.
func (s *soak) wasShort(at time.Time) bool {
	for _, p := range s.pressing {
		if at.After(p.from) && at.Before(p.to.Add(5*chaosRound)) {
			return true
		}
	}
	return false
}

// named is when which pod was named by a plugin.
func (s *soak) named() map[string][]time.Time {
	all := map[string][]time.Time{}
	logs, err := os.ReadDir(s.logs)
	require.NoError(s.t, err)
	c := &chaos{world: s.world, logs: s.logs}
	for _, log := range logs {
		for _, said := range c.said(log.Name()) {
			for _, pod := range said.Named {
				all[pod] = append(all[pod], said.Time)
			}
		}
	}
	return all
}

func wasNamed(when []time.Time, at time.Time) bool {
	for _, named := range when {
		if since := at.Sub(named); since > -time.Second && since < answersCount+5*chaosRound {
			return true
		}
	}
	return false
}

// processorTime of a process so far.
func processorTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var user, system int64
	_, _ = fmt.Sscan(fields[11]+" "+fields[12], &user, &system) // the kernel's own numbers
	return time.Duration(user+system) * time.Second / 100
}
