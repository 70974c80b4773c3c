package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll/cri"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/guard"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/recording"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
	"github.com/plimsoll-dev/plimsoll/systemd"
	"github.com/plimsoll-dev/plimsoll/throttle/resize"
)

// Agent is the daemon of one node, composed of its parts.
type Agent struct {
	Config *config.File
	Log    *slog.Logger
	// Show receives every new state, in order, from one goroutine; nil: no
	// display.
	Show func(*view.State)
	// OnListening is called by Open with each web address; may be nil.
	OnListening func(url string)
	// Examine the machine as plimsoll doctor does, for those who ask through the API
	// server; nil: not served.
	Examine func(context.Context) any
	// Level of Log follows the configuration; nil: the level is fixed.
	Level *slog.LevelVar

	lock             *StateLock
	host             *probes.Host
	history          *snapshot.History
	past             *historyKeeper
	set              *plugins.Set
	containerRuntime *cri.Reader
	baselines        baselineStore
	recorder         *recording.Recorder // nil: nothing is recorded
	outerVerdicts    verdictRecorder
	About            view.Agent
	config           *config.Agent // in force in the sample loop; see reconfigure
	triggers         *probes.Triggers
	cluster          *cluster // nil in standalone mode
	outer            *outerHost
	movers           *moverBudget
	throttles        *throttles
	listeners        []*web.Listener // of Open
	decisions        evict.Log
	records          *decisionStore // owned by the round's goroutine once it is loaded
	counters         evict.Counters

	// throttling guards the throttles, which the rounds and the throttle loop use; throttled is
	// the state that was used last. resizing is locked before it, for as long as the API server
	// takes.
	throttling      sync.Mutex
	resizing        sync.Mutex
	throttled       *view.State
	throttlingEnded bool

	// Owned by the round's goroutine.
	savedState  evict.State
	savedAt     time.Time       // when a state was written last
	boot        string          // boot ID
	lastJudged  *plugins.Levels // verdicts of the inner plugins that the last round used
	lastDecided *plugins.Levels // levels that the last round decided by
	observed    *config.Agent   // configuration that it decides by
	unevictable map[string]int  // evict.Unevictable of the last round

	// Owned by the sample loop, except pace.woken.
	pace           pace
	hurried        bool      // memory was short at the last sample, and all workloads were read
	loggedTriggers []string  // notes about triggers that were logged last
	missedAt       time.Time // when a tick was missed last

	state         atomic.Pointer[view.State]
	lastSample    atomic.Pointer[time.Time] // when the last sample ended
	roundLiveness process.Liveness          // when the last round ended
	unsaved       atomic.Pointer[unsaved]   // the eviction state cannot be saved; nil: it is saved
	missed        atomic.Uint64
	levelRose     chan struct{} // wakes the round loop: a level rose
	throttleDue   chan struct{} // wakes the throttle loop: a level rose, or memory runs out
	published     chan struct{} // wakes the display: a state was published
	pageBell      web.Notifier  // the same, for clients that watch the page
}

// New prepares what can fail: the kernel's files. It starts nothing; the agent
// is standalone until Join.
//
// A state directory whose disk hangs delays the start, from the lock on, by little more than
// stateTimeout: the agent then begins without what an earlier one saved. lock is nil where
// the agent takes none.
func New(file *config.File, log *slog.Logger, configPath string, lock *StateLock) (*Agent, error) {
	c := file.Current()
	if lock == nil {
		lock = &StateLock{until: time.Now().Add(stateTimeout)}
	}
	host, err := probes.NewHost(probes.Paths{Procfs: c.Paths.Procfs, Sysfs: c.Paths.Sysfs, Cgroupfs: c.Paths.Cgroupfs, Rootfs: c.Paths.Rootfs}, c.Workloads.Roots)
	if err != nil {
		return nil, err
	}
	node, err := NodeName(c)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		Config: file, Log: log, host: host, config: c, lock: lock,
		history:     &snapshot.History{},
		past:        newHistory(c.State.Dir),
		baselines:   newUsual(c.State.Dir),
		records:     newRecords(c.State),
		decisions:   evict.Log{Max: c.State.Decisions},
		levelRose:   make(chan struct{}, 1),
		throttleDue: make(chan struct{}, 1),
		published:   make(chan struct{}, 1),
		pace:        pace{woken: make(chan struct{}, 1)},
		About: view.Agent{
			Node: node, Version: process.Version(), Started: time.Now(), Mode: "standalone", ConfigFile: configPath, Restrictions: permissionNotes(c.Paths.Procfs),
		},
	}
	if a.boot = bootID(c.Paths.Procfs); a.boot == "" {
		a.boot = "unknown" // then boots are told apart by uptime alone
	}
	a.set = plugins.NewSet(c.Plugins.Inner, a.baselines.load(lock.wait(), log))
	a.decisions.Restore(a.records.load(lock.wait(), log))
	a.containerRuntime = &cri.Reader{Root: host.Root, Settings: a.containerRuntimeSettings, Log: log}
	a.movers, a.throttles = newMoverBudget(c.State.Dir, lock.wait(), log), newThrottles(c.State.Dir, bootID(c.Paths.Procfs), lock, host, log)
	a.outer = newOuterHost(c, lock.wait(), a.Config.Current, a.Log)
	a.triggers = newTriggers(c, a.Config.Current, func() { wake(a.pace.woken) })
	a.sampled()
	if a.About.CgroupFlavour, err = host.CgroupFlavour(); err != nil {
		log.Warn("cannot find the cgroup hierarchy; workloads are not measured", "error", err)
	}
	a.applyConfig(c)
	if c.Recording.Dir != "" {
		a.recorder = recording.New(c.Recording, process.Version(), StartedBy(), log)
	}
	return a, nil
}

// NodeName is the name of the Node that is this host.
func NodeName(c *config.Agent) (string, error) {
	if c.Kubernetes.Node != "" {
		return c.Kubernetes.Node, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("host name: %w", err)
	}
	return strings.ToLower(strings.TrimSpace(name)), nil // as a kubelet does
}

// Join connects the agent to a cluster: it may then mark its Node and evict
// pods. It loads the eviction state that an earlier agent saved.
func (a *Agent) Join() error {
	c := a.Config.Current()
	cl, err := newCluster(c, a.About.Node, a.Log)
	if err != nil {
		return err
	}
	a.cluster, a.About.Mode = cl, "cluster"
	a.throttles.event, a.throttles.ofNamespace = cl.events.Pod, cl.throttle.Value
	a.throttles.resizes.api = &resize.API{Core: cl.core, Node: a.About.Node}
	if cl.heartbeat != nil {
		cl.heartbeat.id = a.lock.StateID()
		held := protectProcess()
		a.About.Restrictions = append(a.About.Restrictions, held...)
		for _, note := range held {
			a.Log.Info("the heartbeat is not fully protected from memory shortage", "note", note)
		}
	}
	cl.terminationBound = func() time.Duration {
		now := a.Config.Current().Eviction
		return now.MaxTerminationGrace + now.OverdueAfter
	}
	cl.needsReclaimed = func() bool { return a.Config.Current().Plugins.ReclaimedOvercommit.Enabled }
	a.loadState(c.Eviction)
	cl.requester.LateAnswer = func() { wake(a.levelRose) }
	cl.requester.Round = func() time.Duration { return a.Config.Current().Eviction.Round }
	if a.savedState.Pending(time.Now()) == "" {
		cl.requester.Withdraw() // requests that an earlier agent left in the Lease
	}
	return nil
}

// loadState loads the eviction state that an earlier agent saved. If the disk has not answered in
// time, a later round takes it over.
func (a *Agent) loadState(c evict.Config) {
	cl := a.cluster
	cl.late = state.Begin(&cl.writer, a.lock.wait(), cl.store.Load)
	saved, loaded := a.takeState()
	if !loaded {
		saved = evict.NoSavedState(time.Now().UTC(), c)
	}
	a.savedState = saved
	if cl.late != nil {
		a.Log.Warn("cannot read the saved eviction state: the disk of the state directory hangs; until it answers no state is saved, token buckets begin without tokens, and rules other than those of a fresh install are report-only", "file", cl.store.Path)
	}
}

// takeState returns the eviction state of an earlier agent, once the disk has answered and no
// other agent uses it.
func (a *Agent) takeState() (saved evict.State, loaded bool) {
	if !a.lock.mayUse() {
		return saved, false
	}
	select {
	case answer := <-a.cluster.late:
		a.cluster.late = nil
		switch {
		case errors.Is(answer.Err, state.ErrNoState):
			a.Log.Info("no saved eviction state; starting empty")
		case answer.Err != nil:
			a.Log.Warn("cannot read the saved eviction state; starting empty: token buckets have no tokens, and rules other than those of a fresh install are report-only at first", "file", a.cluster.store.Path, "error", answer.Err)
		}
		return answer.Value, answer.Err == nil
	default:
		return saved, false
	}
}

// Open is the last step that can fail before Run: it makes sure that no other agent runs on this
// node, and opens the local socket and the web addresses. Limits of an earlier agent that have
// expired end in any case.
func (a *Agent) Open(ctx context.Context) (err error) {
	now := time.Now()
	a.throttles.expire(now, now.Add(-uptime()))
	if a.cluster != nil {
		if err := a.cluster.heartbeat.waitUntilAlone(ctx, a.cluster.leases); err != nil {
			return err
		}
	}
	a.listeners, err = a.listen(ctx)
	return err
}

// Run runs all parts of an agent that is open, until ctx is done, then stops them and returns
// nil. It returns an error as soon as a part fails. At its end it removes its limits on pods.
func (a *Agent) Run(ctx context.Context) error {
	endRecording := a.startRecording(ctx)
	g, ctx := errgroup.WithContext(ctx)
	a.triggers.Arm()
	g.Go(func() error { return a.runTriggers(ctx) })
	g.Go(func() error { return a.sampleLoop(ctx) })
	g.Go(func() error { return a.throttleLoop(ctx) })
	g.Go(func() error { return a.roundLoop(ctx) })
	g.Go(func() error { return a.baselines.keep(ctx, a.Log) })
	g.Go(func() error { return a.past.run(ctx, a.pageBell.Next, a.newestState, a.Log) })
	g.Go(func() error { return a.outer.host.Run(ctx) })
	g.Go(func() error { return a.containerRuntime.Run(ctx) })
	shown := a.startShow(ctx)
	g.Go(func() error { return a.lock.await(ctx) })
	g.Go(func() error { return a.Config.Run(ctx) })
	svc := &process.Service{Log: a.Log}
	g.Go(func() error { return a.notifySystemd(ctx, svc) })
	g.Go(func() error { return svc.ReloadOnHangup(ctx, a.Config.Reload) })
	g.Go(func() error { return svc.NotifyStopping(ctx) })
	if a.cluster != nil {
		a.cluster.run(ctx, g)
	}
	for _, l := range a.listeners {
		g.Go(func() error { return l.Serve(ctx) })
	}
	err := process.WaitAll(ctx, g)
	a.flush()
	endRecording()
	select {
	case <-shown:
	case <-time.After(showTimeout): // the output is not read: give up on the last lines
	}
	return err
}

// containerRuntimeSettings are those of the container runtime, and whether a rule needs
// its answers.
func (a *Agent) containerRuntimeSettings() (cri.Config, bool) {
	c := a.Config.Current()
	return c.ContainerRuntime, c.Plugins.RootfsOveruse.Enabled
}

// flush waits until the state that the next agent needs is on disk, or
// StopTimeout is over.
func (a *Agent) flush() {
	until := time.Now().Add(process.StopTimeout)
	err := errors.Join(a.records.writer.Flush(time.Until(until)), a.movers.writer.Flush(time.Until(until)), a.throttles.writer.Flush(time.Until(until)), a.past.writer.Flush(time.Until(until)))
	if a.cluster != nil {
		err = errors.Join(err, a.cluster.writer.Flush(time.Until(until)))
	}
	if err != nil {
		a.Log.Warn("state not written before exit: the disk of the state directory hangs; the next agent may miss the latest decisions", "waited", process.StopTimeout)
	}
}

// showTimeout bounds how long the shutdown waits for the last lines to be read.
const showTimeout = time.Second

// startShow passes each state to Show in a goroutine of its own: a terminal or
// pipe that is not read delays neither a sample nor the shutdown.
func (a *Agent) startShow(ctx context.Context) (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-a.published:
				if a.Show != nil {
					a.Show(a.state.Load().WithCluster(a.viewCluster(), a.decisions.List()).WithOuter(a.viewOuter()))
				}
			}
		}
	}()
	return done
}

// processInterval is the time between the two readings of a workload's processes.
const processInterval = 500 * time.Millisecond

// listen opens the local socket and the web addresses.
func (a *Agent) listen(ctx context.Context) ([]*web.Listener, error) {
	c := a.Config.Current()
	server := &web.Server{
		State: a.state.Load, Published: a.pageBell.Next, Cluster: a.viewCluster, Decisions: a.decisions.List, Outer: a.viewOuter, Healthy: a.healthy, Ready: a.ready,
		Reload: a.Config.Reload, Examine: a.Examine, Version: process.Version(), Log: a.Log, History: &a.past.store, Pods: web.NewPodSeries(c.Web.PodSeries.Top, c.Web.PodSeries.MaxSeries),
		Processes: func(ctx context.Context, cgroup string) (probes.ProcessList, error) {
			paths := probes.Paths{Procfs: c.Paths.Procfs, Sysfs: c.Paths.Sysfs, Cgroupfs: c.Paths.Cgroupfs, Rootfs: c.Paths.Rootfs}
			return probes.ReadProcesses(ctx, paths, cgroup, processInterval)
		},
	}
	local, err := server.ListenLocal(ctx, c.API.Socket)
	if err != nil {
		return nil, err
	}
	list := []*web.Listener{local}
	exposure := web.Exposure{Open: c.Web.Open, Pprof: c.Web.Pprof}
	if exposure.Auth, err = a.guard(); err != nil {
		return nil, errors.Join(err, process.CloseAll(list))
	}
	opened, err := process.OpenWeb(ctx, server, c.Web.ListenAddresses, exposure)
	if err != nil {
		return nil, errors.Join(err, process.CloseAll(list))
	}
	for _, l := range opened {
		a.Log.Info("listening", "url", l.URL())
		if a.OnListening != nil {
			a.OnListening(l.URL())
		}
	}
	return append(list, opened...), nil
}

// healthy fails if no sample has ended for the watchdog's time.
func (a *Agent) healthy() error {
	if age := a.sampleAge(); age > a.Config.Current().Watchdog {
		return fmt.Errorf("sample: none for %s", age.Round(time.Second))
	}
	return nil
}

// loopRounds is the loop that decides and acts. While it hangs, for example in
// a write to a disk that does not answer, the agent is not ready. It is still
// healthy: its Lease shows that the node is alive, and a restarted agent would
// hang there too.
const loopRounds = "rounds"

// readyTicks is the greatest age of the last sample of a ready agent, in ticks.
const readyTicks = 3

func (a *Agent) ready() error {
	if a.state.Load() == nil {
		return errors.New("sample: none yet")
	}
	if age := a.sampleAge(); age > readyTicks*a.Config.Current().Tick {
		return fmt.Errorf("sample: the last one is %s old", age.Round(100*time.Millisecond))
	}
	if age := a.roundsStuck(); age > 0 {
		return fmt.Errorf("%s: stuck for %s", loopRounds, age.Round(time.Second))
	}
	if a.cluster != nil {
		return a.cluster.ready()
	}
	return nil
}

// roundsStuck is how long ago the last round ended, if that is too long; else 0.
func (a *Agent) roundsStuck() time.Duration {
	return a.roundLiveness.Overdue(loopRounds, process.NotReadyAfter+a.Config.Current().Plugins.Deadline)
}

func (a *Agent) viewCluster() *view.Cluster {
	if a.cluster == nil {
		return nil
	}
	c := a.Config.Current()
	v := a.cluster.view(c.Eviction, &a.counters)
	v.ConditionsOff = !c.Conditions.Enabled
	v.DataMovers, v.Throttles = a.movers.shown.Load(), a.throttles.shown.Load()
	v.RoundsStuckSeconds = a.roundsStuck().Seconds()
	v.UnsavedSeconds, v.UnsavedReason = a.unsaved.Load().since()
	return v
}

// newestState is the last published state with the outer plugins; nil before the first.
func (a *Agent) newestState() *view.State { return a.state.Load().WithOuter(a.viewOuter()) }

// sampled records that a sample has ended. Its age goes by the monotonic clock, which is not set.
func (a *Agent) sampled() { a.lastSample.Store(new(time.Now())) }

func (a *Agent) sampleAge() time.Duration { return time.Since(*a.lastSample.Load()) }

// startRecording writes samples in a goroutine of its own. end waits until the
// last ones are written, or StopTimeout is over.
func (a *Agent) startRecording(ctx context.Context) (end func()) {
	if a.recorder == nil {
		return func() {}
	}
	recording, stop := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the sample loop
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.recorder.Run(recording)
	}()
	return func() {
		stop()
		select {
		case <-ended:
		case <-time.After(process.StopTimeout):
			a.Log.Warn("end of the recording not written before exit: the disk of recording.dir hangs; what was written can be read", "waited", process.StopTimeout)
		}
	}
}

// guard authenticates clients of the agent's addresses.
func (a *Agent) guard() (*guard.Authenticator, error) {
	c := a.Config.Current()
	if c.Web.TokenReview && a.cluster == nil {
		return nil, errors.New("web.tokenReview: needs an API server, but the agent runs standalone")
	}
	return process.NewGuard(c.Web.ConfigFile, c.Web.TokenReview, c.Kubernetes.Kubeconfig, a.Log)
}

// notifySystemd notifies systemd of each sample. If samples stop, the watchdog ends
// the agent after the same time from which /-/healthy fails.
func (a *Agent) notifySystemd(ctx context.Context, svc *process.Service) error {
	if !systemd.Listens() {
		return nil
	}
	for {
		next := a.pageBell.Next()
		if s := a.state.Load(); s != nil {
			svc.Alive(a.status(s), a.Config.Current().Watchdog)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-next:
		}
	}
}

// status is the node's state and what it means for its pods, in one line.
func (a *Agent) status(s *view.State) string {
	headline, _ := s.Headline()
	return headline + " · " + s.WithCluster(a.viewCluster(), nil).ModeText() + process.ConfigWarning(a.Config.Status())
}

// SampleOnce takes a sample and returns a state with rates: the first time it
// takes two samples, a tick apart.
func (a *Agent) SampleOnce(ctx context.Context) (*view.State, error) {
	first := a.state.Load() == nil
	if err := a.sample(); err != nil {
		return nil, err
	}
	if first {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(a.config.Tick):
		}
		if err := a.sample(); err != nil {
			return nil, err
		}
	}
	return a.state.Load(), nil
}

func (a *Agent) viewOuter() *view.OuterPlugins {
	now := time.Now()
	return &view.OuterPlugins{Plugins: a.outer.host.Status(now), Counts: a.outer.host.Counts(), Ended: a.outer.host.Ended(now), Rivals: a.outer.host.Rivals(), Beside: a.Config.Current().Plugins.Beside}
}

// runTriggers runs until ctx is done. If it fails, polling at ticks goes on.
func (a *Agent) runTriggers(ctx context.Context) error {
	if err := a.triggers.Run(ctx); err != nil {
		a.Log.Warn("PSI triggers stopped; stalls are seen at the next tick", "error", err)
	}
	return nil
}
