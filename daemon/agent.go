package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// Agent is the daemon of one node, composed of its parts.
type Agent struct {
	Config *config.File
	Log    *slog.Logger
	// Show is told of every new state, in order, by one goroutine; nil for
	// nobody.
	Show func(*view.State)
	// Hide ends the showing, in the same goroutine; nil for nothing.
	Hide func()
	// Listening is told each web address before anything else runs; nil for
	// nobody.
	Listening func(url string)
	// Level of Log follows the configuration; nil: it stays.
	Level *slog.LevelVar

	host      *probes.Host
	history   *probes.History
	set       *plugins.Set
	recorder  *probes.Recorder
	about     view.Agent
	config    *config.Agent // that the sample loop works by
	cluster   *cluster      // nil when it runs standalone
	decisions evict.Log
	tally     evict.Tally

	// Of the round's goroutine alone.
	memory evict.Memory
	before *plugins.Levels // that the last round decided about

	state  atomic.Pointer[view.State]
	beat   atomic.Int64 // when the last sample ended, Unix nanoseconds
	missed atomic.Uint64
	risen  chan struct{} // a level rose: a round at once
	tick   chan struct{} // a state was published: for Show
}

// decisionsKept in memory.
const decisionsKept = 200

// NewAgent prepares what can fail: the kernel's files, the recording. It
// starts nothing, and knows no cluster until Join.
func NewAgent(file *config.File, log *slog.Logger, configPath string) (*Agent, error) {
	c := file.Current()
	host, err := probes.NewHost(probes.Paths{Procfs: c.Paths.Procfs, Sysfs: c.Paths.Sysfs, Cgroupfs: c.Paths.Cgroupfs}, c.Workloads.Roots)
	if err != nil {
		return nil, err
	}
	node := c.Kubernetes.Node
	if node == "" {
		if node, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("host name: %w", err)
		}
		node = strings.ToLower(strings.TrimSpace(node)) // as a kubelet does
	}
	a := &Agent{
		Config: file, Log: log, host: host, config: c,
		history:   &probes.History{},
		set:       plugins.NewSet(c.Plugins),
		decisions: evict.Log{Max: decisionsKept},
		risen:     make(chan struct{}, 1),
		tick:      make(chan struct{}, 1),
		about: view.Agent{
			Node: node, Version: Version(), Started: time.Now(), Mode: "standalone", ConfigFile: configPath, Notes: notes(c.Paths.Procfs),
		},
	}
	a.beat.Store(time.Now().UnixNano())
	if a.about.CgroupFlavour, err = host.CgroupFlavour(); err != nil {
		log.Warn("no workloads will be seen", "error", err)
	}
	a.follow(c)
	if c.Recording.File != "" {
		if a.recorder, err = probes.NewRecorder(c.Recording.File, Version(), c.Recording.MaxSize); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Join makes the agent one of a cluster: its Node is marked and its pods may
// be evicted, by what the agent before it remembered.
func (a *Agent) Join() error {
	c := a.Config.Current()
	cl, err := newCluster(c, a.about.Node, a.Log)
	if err != nil {
		return err
	}
	a.cluster, a.about.Mode = cl, "cluster"
	if a.memory, err = cl.store.Load(); err != nil {
		// Nothing is known of what was decided before: as if it had been now.
		a.memory.Quiet = time.Now().Add(c.Eviction.Settle)
		a.Log.Info("starts without a memory", "reason", err)
	}
	return nil
}

// Run lives until ctx is done, then ends everything and returns nil; or it
// returns why a part could not go on.
func (a *Agent) Run(ctx context.Context) error {
	listeners, err := a.listen(ctx)
	if err != nil {
		return err
	}
	defer a.closeRecorder()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.sampleLoop(ctx) })
	g.Go(func() error { return a.roundLoop(ctx) })
	shown := a.startShow(ctx)
	g.Go(func() error { return a.Config.Run(ctx) })
	g.Go(func() error { return a.reloadOnHangup(ctx) })
	if a.cluster != nil {
		a.cluster.run(ctx, g)
	}
	for _, l := range listeners {
		g.Go(func() error { return l.Serve(ctx) })
	}
	err = ended(ctx, g)
	select {
	case <-shown:
	case <-time.After(showTimeout): // nobody reads the output: it is left behind
	}
	return err
}

// endTimeout is how long the parts have to end: one may hang in the kernel.
const endTimeout = 5 * time.Second

// ended waits for the parts, and not for ever once they were told to end.
func ended(ctx context.Context, g *errgroup.Group) error {
	all := make(chan error, 1)
	go func() { all <- g.Wait() }()
	select {
	case err := <-all:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-all:
		return err
	case <-time.After(endTimeout):
		return fmt.Errorf("a part did not end within %s: a read of a kernel file or a write of state hangs", endTimeout)
	}
}

// showTimeout is how long the end of the agent waits for its last line to be
// read.
const showTimeout = time.Second

// startShow hands each state to whoever looks, outside of all else: a terminal
// or a pipe that nobody reads delays neither a sample nor the end.
func (a *Agent) startShow(ctx context.Context) (ended <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				if a.Hide != nil {
					a.Hide()
				}
				return
			case <-a.tick:
				if a.Show != nil {
					a.Show(a.state.Load().With(a.viewCluster(), a.decisions.List()))
				}
			}
		}
	}()
	return done
}

// listen opens the local socket and the web addresses.
func (a *Agent) listen(ctx context.Context) ([]*web.Listener, error) {
	server := &web.Server{
		State: a.state.Load, Cluster: a.viewCluster, Decisions: a.decisions.List, Healthy: a.healthy, Ready: a.ready,
		Reload: a.Config.Reload, Version: Version(), Log: a.Log,
	}
	c := a.Config.Current()
	local, err := server.ListenLocal(ctx, c.API.Socket)
	if err != nil {
		return nil, err
	}
	list := []*web.Listener{local}
	for _, address := range c.Web.ListenAddresses {
		l, err := server.Listen(ctx, address, web.Exposure{Open: c.Web.Open, Pprof: c.Web.Pprof})
		if err != nil {
			return nil, errors.Join(err, closeAll(list))
		}
		url := "http://" + l.Addr().String() + "/"
		a.Log.Info("listening", "url", url)
		if a.Listening != nil {
			a.Listening(url)
		}
		list = append(list, l)
	}
	return list, nil
}

func closeAll(list []*web.Listener) error {
	var errs []error
	for _, l := range list {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// healthy fails when no sample ended for the watchdog's time.
func (a *Agent) healthy() error {
	if age := a.age(); age > a.Config.Current().Watchdog {
		return fmt.Errorf("sample: none for %s", age.Round(time.Second))
	}
	return nil
}

// readyTicks is how many ticks old the last sample may be.
const readyTicks = 3

func (a *Agent) ready() error {
	if a.state.Load() == nil {
		return errors.New("sample: none yet")
	}
	if age := a.age(); age > readyTicks*a.Config.Current().Tick {
		return fmt.Errorf("sample: the last one is %s old", age.Round(100*time.Millisecond))
	}
	if a.cluster != nil {
		return a.cluster.ready()
	}
	return nil
}

func (a *Agent) viewCluster() *view.Cluster {
	if a.cluster == nil {
		return nil
	}
	return a.cluster.view(a.Config.Current().Eviction, &a.tally)
}

func (a *Agent) age() time.Duration { return time.Since(time.Unix(0, a.beat.Load())) }

func (a *Agent) reloadOnHangup(ctx context.Context) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
			_ = a.Config.Reload() // logged by the file, shown on the page and in the metrics
		}
	}
}

func (a *Agent) closeRecorder() {
	if a.recorder == nil {
		return
	}
	if err := a.recorder.Close(); err != nil {
		a.Log.Error("recording is not closed well", "error", err)
	}
}
