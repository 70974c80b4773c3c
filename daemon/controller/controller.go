package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/plimsoll-dev/plimsoll/abilities"
	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/capability"
	"github.com/plimsoll-dev/plimsoll/daemon/capabilities"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/guard"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
	"github.com/plimsoll-dev/plimsoll/evict/kube"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
)

// Controller is the daemon that acts once per cluster, composed of its parts.
type Controller struct {
	Config *config.FileOf[config.Controller]
	Log    *slog.Logger
	// Level of Log follows the configuration.
	Level *slog.LevelVar

	started  time.Time
	election *election
	queue    *backup.Reconciler
	agents   *agents.Reconciler
	loads    *admission.Reconciler
	// abilities of the installed Velero.
	abilities *abilities.Reader
	events    record.EventBroadcaster
	liveness  *process.Liveness
	api       *connection
	// reviews tell which user the API server takes this controller for.
	reviews authenticationv1client.SelfSubjectReviewsGetter
	// has what the cluster has.
	has *capabilities.Watcher
}

// The loops of the controller.
const (
	loopBackups = "backups"
	loopAgents  = "agents"
	loopLoads   = "vgdp"
)

// New creates the clients. It sends no request: a controller starts
// whether or not the API server answers.
func New(file *config.FileOf[config.Controller], log *slog.Logger) (*Controller, error) {
	c := file.Current()
	how, err := process.RestConfig(c.Kubernetes.Kubeconfig)
	if err != nil {
		return nil, err
	}
	how.UserAgent = reconcile.FieldManager + "/" + process.Version()
	identity, err := newIdentity()
	if err != nil {
		return nil, err
	}
	clock := &agents.Clock{}
	how.Wrap(clock.Wrap)
	api := &connection{log: log}
	how.Wrap(api.Wrap)
	clients, err := NewClients(how, c.Election.Duration)
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	of := make([]string, 0, len(c.Velero))
	for _, v := range c.Velero {
		of = append(of, v.Namespace)
	}
	events := record.NewBroadcaster(record.WithContext(klog.NewContext(context.Background(), logr.FromSlogHandler(log.Handler()))))
	events.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: clients.events.Events("")})
	recorder := events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: reconcile.FieldManager}).WithLogger(logr.Discard())
	beats := &process.Liveness{} // each loop reads its settings once a pass, which is its pulse
	can := &abilities.Reader{Definitions: clients.Dynamic.Resource(abilities.Resource()), Log: log}
	loads := NewLoads(file, clients)
	loads.Abilities = can.Now
	loads.Settings = func() admission.Settings { beats.Record(loopLoads, 0); return file.Current().VGDP }
	has := &capabilities.Watcher{Client: clients.Core.RESTClient(), Now: clock.Now, Log: log}
	loads.Events, loads.Log, loads.JobWorks = recorder, log, has.JobWorks
	queue := &backup.Reconciler{
		Backups: clients.Dynamic.Resource(backup.Resource()), Schedules: clients.Dynamic.Resource(backup.ScheduleResource()),
		Namespaces: clients.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")),
		Of:         of, Abilities: can.Now, Settings: func() backup.Settings {
			s := file.Current().Backups
			beats.Record(loopBackups, s.Resync)
			return s
		}, Log: log,
		Events: recorder,
	}
	loads.Wanted = func(velero, name string) vgdp.Wanted { return vgdp.Wanted(queue.Wanted(velero, name)) }
	queue.Uploads = loads.Uploads
	return &Controller{
		Config: file, Log: log, started: time.Now(), events: events, liveness: beats, api: api,
		election: &election{config: c.Election, leases: clients.leases, identity: identity, log: log},
		queue:    queue,
		agents: &agents.Reconciler{
			Nodes: clients.Core, Leases: clients.Coordination, Pods: clients.Core, Volumes: pods.VolumeResolver{Claims: clients.Core, Volumes: clients.Core},
			Evictor: &kube.Evictor{REST: clients.Core.RESTClient()}, Settings: func() agents.Settings { beats.Record(loopAgents, 0); return agentsSettings(file.Current()) },
			IsVelero: loads.IsVelero,
			Clock:    clock.Now, Events: recorder, About: &corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: c.Election.Namespace, Name: LeaseName}, Log: log,
		},
		loads: loads, abilities: can, has: has, reviews: clients.reviews,
	}, nil
}

// agentsSettings protect the namespaces of the configured Veleros too, whatever
// agents.protect.namespaces lists.
func agentsSettings(c *config.Controller) agents.Settings {
	s := c.Fleet
	s.Protect.Namespaces = slices.Clone(s.Protect.Namespaces)
	for _, v := range c.Velero {
		s.Protect.Namespaces = append(s.Protect.Namespaces, v.Namespace)
	}
	return s
}

// NewLoads is the admission of data mover loads, without logs and Events.
func NewLoads(file *config.FileOf[config.Controller], clients *Clients) *admission.Reconciler {
	r := &admission.Reconciler{
		Dynamic: clients.Dynamic, Core: clients.Core, Leases: clients.Coordination, Classes: clients.Storage,
		Abilities: (&abilities.Reader{Definitions: clients.Dynamic.Resource(abilities.Resource()), Log: slog.New(slog.DiscardHandler)}).Now,
		Settings:  func() admission.Settings { return file.Current().VGDP }, Grace: func() time.Duration { return file.Current().Fleet.Grace },
	}
	for _, v := range file.Current().Velero {
		r.Of = append(r.Of, admission.Velero{Namespace: v.Namespace, ConfigMap: v.NodeAgentConfigMap, PrepareQueueLength: v.PrepareQueueLength})
	}
	return r
}

// Clients of the API server, one connection for all.
type Clients struct {
	Dynamic  dynamic.Interface
	Metadata metadata.Interface
	leases   coordinationv1client.LeasesGetter
	events   corev1client.EventsGetter
	reviews  authenticationv1client.SelfSubjectReviewsGetter

	Core         corev1client.CoreV1Interface
	Coordination coordinationv1client.LeasesGetter
	Storage      storagev1client.StorageClassesGetter
}

// eventTimeout bounds each write of an Event, and each question about this controller's user.
const eventTimeout = 5 * time.Second

// NewClients share one connection; custom resources are not served as protobuf.
func NewClients(how *rest.Config, lease time.Duration) (*Clients, error) {
	how = rest.CopyConfig(how)
	how.DisableCompression = true // a watch is many small messages
	plain := rest.CopyConfig(how)
	plain.ContentType, plain.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	backups, err := dynamic.NewForConfig(plain)
	if err != nil {
		return nil, err
	}
	namespaces, err := metadata.NewForConfig(how)
	if err != nil {
		return nil, err
	}
	// A request for the Lease that hangs must time out early enough for a retry.
	electing := rest.CopyConfig(how)
	electing.Timeout = lease * renewShare / renewOf / 2
	leases, err := coordinationv1client.NewForConfig(electing)
	if err != nil {
		return nil, err
	}
	telling := rest.CopyConfig(how)
	telling.Timeout = eventTimeout
	events, err := corev1client.NewForConfig(telling)
	if err != nil {
		return nil, err
	}
	reviews, err := authenticationv1client.NewForConfig(telling)
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfig(how)
	if err != nil {
		return nil, err
	}
	coordination, err := coordinationv1client.NewForConfig(how)
	if err != nil {
		return nil, err
	}
	storage, err := storagev1client.NewForConfig(how)
	if err != nil {
		return nil, err
	}
	return &Clients{
		Dynamic: backups, Metadata: namespaces, leases: leases, events: events, reviews: reviews, Core: core, Coordination: coordination, Storage: storage,
	}, nil
}

// Run runs all parts until ctx is done, then stops them and returns nil. It
// returns an error as soon as a part fails.
func (c *Controller) Run(ctx context.Context) error {
	listeners, err := c.listen(ctx)
	if err != nil {
		return err
	}
	defer c.events.Shutdown()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.election.Run(ctx, c.runAsLeader) })
	g.Go(func() error { return c.Config.Run(ctx) })
	g.Go(func() error { return c.has.Run(ctx) })
	g.Go(func() error { return c.readAbilities(ctx) })
	g.Go(func() error { return process.WatchLoops(ctx, c.healthy) })
	svc := &process.Service{Log: c.Log}
	g.Go(func() error { return c.notifySystemd(ctx, svc) })
	g.Go(func() error { return svc.ReloadOnHangup(ctx, c.Config.Reload) })
	g.Go(func() error { return svc.NotifyStopping(ctx) })
	for _, l := range listeners {
		g.Go(func() error { return l.Serve(ctx) })
	}
	return process.WaitAll(ctx, g)
}

// runAsLeader runs the loops of the leader until leadership is lost.
func (c *Controller) runAsLeader(ctx context.Context) error {
	defer c.liveness.Reset()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { c.checkUser(ctx); return nil })
	g.Go(func() error { return c.queue.Run(ctx) })
	g.Go(func() error { return c.agents.Run(ctx) })
	g.Go(func() error { return c.loads.Run(ctx) })
	return g.Wait()
}

// abilitiesEvery is how often the reader is asked what Velero can do; it has its own pause
// between two readings.
const abilitiesEvery = 5 * time.Second

// readAbilities keeps it known whether Velero can queue Backups, on each replica: while none
// is the leader, PlimsollNoLeader goes by what those on standby say.
func (c *Controller) readAbilities(ctx context.Context) error {
	ticker := time.NewTicker(abilitiesEvery)
	defer ticker.Stop()
	for {
		if c.Config.Current().Backups.Enabled {
			c.abilities.Now(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// account is the user whose writes the admission policies let pass.
const account = "system:serviceaccount:plimsoll-system:plimsoll-controller"

// checkUser logs that the API server takes this controller for another user, as with the
// client certificate of an administrator. What cannot be asked now is asked by the next
// leader.
func (c *Controller) checkUser(ctx context.Context) {
	review, err := c.reviews.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username == account {
		return
	}
	c.Log.Warn("the kubeconfig has another user than the admission policies let pass: where deploy/gate.yaml and deploy/identity.yaml are applied, tickets for data mover loads and answers to eviction requests are refused; put a token of the account into the kubeconfig (docs/install-bare-metal.md)",
		"user", review.Status.UserInfo.Username, "account", account)
}

func (c *Controller) listen(ctx context.Context) ([]*web.Listener, error) {
	w := c.Config.Current().Web
	server := &web.Controller{State: c.state, Healthy: c.healthy, Ready: c.ready, Log: c.Log}
	who, err := c.guard()
	if err != nil {
		return nil, err
	}
	list, err := process.OpenWeb(ctx, server, w.ListenAddresses, web.Exposure{Open: w.Open, Pprof: w.Pprof, Auth: who})
	if err != nil {
		return nil, err
	}
	for _, l := range list {
		c.Log.Info("listening", "url", l.URL())
	}
	return list, nil
}

// healthy fails when a loop is stuck. A standby replica has no loops.
func (c *Controller) healthy() error { return c.liveness.Check(process.StuckAfter) }

// ready says why this replica is not, with the problem that explains it. A problem with the
// API server that lasts is enough: what needs the request is not done.
func (c *Controller) ready() error {
	err := c.leadsOrFollows()
	for _, p := range c.api.list() {
		switch {
		case err != nil:
			return fmt.Errorf("%w: %s", err, p.Text())
		case time.Since(p.Since) > c.election.config.Duration:
			return errors.New("API server: " + p.Text())
		}
	}
	return err
}

// leadsOrFollows: a standby knows the leader; a leader has listed its objects and its
// loops make progress.
func (c *Controller) leadsOrFollows() error {
	if err := c.election.ready(); err != nil {
		return err
	}
	if !c.election.isLeader.Load() {
		return nil
	}
	switch config := c.Config.Current(); {
	case config.Backups.Enabled && !c.queue.Decided():
		return errBackupsNotListed
	case config.Fleet.Enabled && !c.agents.Decided():
		return errAgentsNotListed
	case config.VGDP.Enabled && !c.loads.Decided():
		return errLoadsNotListed
	}
	return c.liveness.Check(process.NotReadyAfter)
}

func (c *Controller) state() web.ControllerState {
	return c.stateOf(c.has.List(), c.loads.Reports())
}

// stateOf is the state of a controller that has these capabilities and reports on data mover
// loads: what was tried with them says more than what the cluster serves.
func (c *Controller) stateOf(has []capability.Capability, loads []admission.Report) web.ControllerState {
	_, bad, _ := c.Config.Status()
	s := web.ControllerState{
		Version: process.Version(), Started: c.started, Identity: c.election.identity, Leader: c.election.leaderID(), IsLeader: c.election.isLeader.Load(), Problems: c.api.list(),
		QueueEnabled: c.Config.Current().Backups.Enabled, CannotQueue: !c.abilities.Last().Queues(), QueueDecided: c.queue.Decided(), Queues: c.queue.Reports(), QueueOf: c.queue.Of, Unqueued: c.queue.Unqueued(), Counts: c.queue.Counts(), Nights: c.queue.Nights(),
		AgentsEnabled: c.Config.Current().Fleet.Enabled, Agents: c.agents.Report(), AgentCounts: c.agents.Counts(),
		Capabilities: has, AdmissionEnabled: c.Config.Current().VGDP.Enabled, DataMoverLoads: loads, DataMoverCounts: c.loads.Counts(),
	}
	for i := range loads {
		s.Capabilities = capabilities.Tested(s.Capabilities, loads[i].NotHidden)
	}
	s.DeadlinesEnabled = c.Config.Current().Backups.Deadlines.Enabled
	if s.IsLeader && (s.QueueEnabled || s.AdmissionEnabled) {
		s.Capabilities = slices.Concat(s.Capabilities, c.abilities.Last().Capabilities())
	}
	if bad != nil {
		s.ConfigError = bad.Error()
	}
	return s
}

// reportEvery is how often the log level is applied and systemd notified.
const reportEvery = time.Second

// feedWatchdog feeds systemd's watchdog unless a loop is stuck.
func (c *Controller) feedWatchdog(svc *process.Service) {
	if c.healthy() == nil {
		svc.Alive(c.status(), 0)
	}
}

// notifySystemd depends on no loop, so that a stuck one cannot stop it.
func (c *Controller) notifySystemd(ctx context.Context, svc *process.Service) error {
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		process.SetLevel(c.Level, c.Config.Current().Log)
		c.feedWatchdog(svc)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// status of this replica in one line.
func (c *Controller) status() string {
	text := "no leader known"
	switch leader := c.election.leaderID(); {
	case c.election.isLeader.Load():
		text = "leader"
	case leader != "":
		text = "standby; leader is " + leader
	}
	if list := c.api.list(); len(list) > 0 {
		text += " · " + list[0].Kind.Text()
	}
	return text + process.ConfigWarning(c.Config.Status())
}

// guard authenticates clients of the controller's addresses.
func (c *Controller) guard() (*guard.Authenticator, error) {
	config := c.Config.Current()
	return process.NewGuard(config.Web.ConfigFile, config.Web.TokenReview, config.Kubernetes.Kubeconfig, c.Log)
}

// errBackupsNotListed: the leader has not listed the Backups yet.
var errBackupsNotListed = errors.New("backups: not listed yet")

// errAgentsNotListed: the leader has not listed the agents yet.
var errAgentsNotListed = errors.New("agents: Nodes and Leases not listed yet")

// errLoadsNotListed: the leader has not listed the data mover loads yet.
var errLoadsNotListed = errors.New("vgdp: Nodes, node-agents and Leases not listed yet")
