package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/agents/client"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/evict/kube"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
)

// cluster is what an agent needs to act in a cluster; a standalone agent has
// none.
type cluster struct {
	node   string
	bootID string
	core   corev1client.CoreV1Interface
	nodes  corev1client.NodesGetter
	pods   *pods.Watcher
	// throttle is the label of namespaces that allows or forbids throttling their pods.
	throttle *pods.NamespaceLabel
	// disruptions answers outer plugins that report candidates.
	disruptions *pods.DisruptionReader
	evictor     *kube.Evictor
	requests    *kube.EvictionRequester
	requester   *client.EvictionRequester
	tainter     *kube.Tainter
	cnr         *cnr
	events      *kube.Announcer
	status      *lease.Status
	heartbeat   *heartbeat // the agent's own Lease; nil: lease.enabled is false
	nodeLease   *heartbeat // the Node's Lease; nil: a kubelet renews it
	store       state.File[evict.State]
	writer      state.Writer  // of store
	saveTimeout time.Duration // how long a round waits for the disk
	// late brings what an earlier agent has stored, once the disk answers; nil: it is known.
	late <-chan state.Answer[evict.State]
	log  *slog.Logger

	// conditions are the ones decided last. marked is closed when there are some:
	// until then nothing is written, or a restart would remove what an earlier
	// agent wrote.
	conditions atomic.Pointer[[]lease.Condition]
	marked     chan struct{}

	// facts is what the sample loop uses of the cluster; moved signals that it is
	// out of date.
	facts       atomic.Pointer[snapshot.Cluster]
	podsChanged chan struct{}
	reclaimed   *reclaimedReader
	// leases are used once, at startup: by waitUntilAlone or, where lease.enabled is false, by
	// withdrawLease.
	leases coordinationv1client.LeasesGetter
	// needsReclaimed tells whether a rule needs the reclaimed resources. terminationBound is how
	// long a deleted pod counts as terminating for the rules (credit).
	needsReclaimed   func() bool
	terminationBound func() time.Duration
	terminating      terminations // owned by updateFacts's goroutine

	// Owned by the round's goroutine.
	nodeRead *corev1.Node // the Node as read in this round, or nil
	uid      string       // of the Node, once it is read
	adopted  bool         // the taints of an earlier agent are known
	unmarked bool         // the Node has no taint of Plimsoll
	// servedKnown: whether the API server serves EvictionRequests is known.
	servedKnown bool
}

// newCluster creates the clients. It sends no request: an agent starts whether
// or not the API server answers.
func newCluster(c *config.Agent, node string, log *slog.Logger) (*cluster, error) {
	how, err := process.RestConfig(c.Kubernetes.Kubeconfig)
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfig(how)
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	leases, err := coordinationv1client.NewForConfig(how)
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	cl := &cluster{
		node: node, bootID: bootID(c.Paths.Procfs), core: core, nodes: core, leases: leases, log: log, marked: make(chan struct{}),
		pods: &pods.Watcher{Node: node, Pods: core, Claims: core, Volumes: core, Log: log, PluginPods: pods.PluginPods{
			Enabled: true, Full: c.Plugins.FullPods, Annotations: c.Plugins.AnnotationKeys(""),
		}, OptOuts: c.Eviction.OptOuts},
		evictor: &kube.Evictor{REST: core.RESTClient()}, requests: &kube.EvictionRequester{REST: core.RESTClient()},
		tainter:     &kube.Tainter{Nodes: core, Node: node, Log: log},
		cnr:         &cnr{marker: &kube.CNRMarker{REST: core.RESTClient(), Node: node, Log: log}},
		events:      kube.NewAnnouncer(core, node, log),
		store:       state.File[evict.State]{Path: filepath.Join(c.State.Dir, "evict.json"), Version: evict.StateVersion, Adopt: (*evict.State).AdoptKeys},
		saveTimeout: saveTimeout,
		status:      &lease.Status{Node: node, Nodes: core, Log: log},
	}
	cl.throttle = pods.NewNamespaceLabel(names.Throttle, core, log)
	cl.disruptions = &pods.DisruptionReader{REST: core.RESTClient(), Pods: cl.pods, Log: log}
	cl.requester = &client.EvictionRequester{Direct: cl.evictor, Wake: func() {}, LateAnswer: func() {}}
	if c.Lease.Enabled {
		if err := cl.addHeartbeats(c.Lease, how); err != nil {
			return nil, err
		}
	}
	cl.podsChanged, cl.reclaimed = make(chan struct{}, 1), &reclaimedReader{rest: core.RESTClient(), node: node}
	cl.needsReclaimed = func() bool { return false }
	cl.terminationBound = func() time.Duration { return c.Eviction.MaxTerminationGrace + c.Eviction.OverdueAfter }
	cl.pods.Changed = func() { wake(cl.podsChanged) }
	cl.buildFacts()
	cl.status.Conditions = func() []lease.Condition { return cl.nodeLease.withReady(*cl.conditions.Load()) }
	return cl, nil
}

// addHeartbeats creates the heartbeat of the agent's own Lease and, with
// lease.target: node, that of the Node's Lease.
func (c *cluster) addHeartbeats(of config.Lease, how *rest.Config) (err error) {
	if c.heartbeat, err = newHeartbeat(of, c.node, how, c.log); err != nil {
		return err
	}
	c.heartbeat.nodeChanged, c.heartbeat.requester, c.requester.Wake = c.status.Reread, c.requester, c.heartbeat.beat.Wake
	if of.Target != config.LeaseOfNode {
		return nil
	}
	if c.nodeLease, err = newNodeLease(of, c.node, how, c.log); err != nil {
		return err
	}
	c.nodeLease.nodeChanged = c.status.Reread
	return nil
}

// withoutLease answers for the controller where no Lease carries requests to it: a reload
// switched both on, and the Lease begins with a restart.
type withoutLease struct{ direct agents.Evictor }

// Evict implements agents.Evictor.
func (e withoutLease) Evict(ctx context.Context, v evict.Victim, dryRun bool) evict.Answer {
	if v.Fallback {
		return e.direct.Evict(ctx, v, dryRun)
	}
	return evict.Answer{
		Time: time.Now(), Outcome: evict.UnknownOutcome, DryRun: dryRun, Via: evict.ViaController,
		Text: "lease.enabled takes effect after a restart: requests cannot be sent",
	}
}

// heartbeats are the heartbeats that are configured.
func (c *cluster) heartbeats() []*heartbeat {
	return slices.DeleteFunc([]*heartbeat{c.heartbeat, c.nodeLease}, func(h *heartbeat) bool { return h == nil })
}

// run keeps the pods and the Node's conditions up to date until ctx is done.
func (c *cluster) run(ctx context.Context, g *errgroup.Group) {
	g.Go(func() error { return c.pods.Run(ctx) })
	g.Go(func() error { return c.throttle.Run(ctx) })
	g.Go(func() error { return c.updateFacts(ctx) })
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-c.marked:
			return c.status.Run(ctx)
		}
	})
	if c.heartbeat == nil {
		g.Go(func() error { withdrawLease(ctx, c.leases, c.node, c.log); return nil })
	}
	for _, h := range c.heartbeats() {
		g.Go(func() error { return h.run(ctx) })
		g.Go(func() error { return h.logChanges(ctx) })
	}
	g.Go(func() error {
		<-ctx.Done()
		c.events.Close()
		return nil
	})
}

// view is what status page, API and metrics show of the cluster.
func (c *cluster) view(config evict.Config, tally *evict.Counters) *view.Cluster {
	list, count := c.pods.Status()
	all := sync.OnceValue(func() pods.List { return c.pods.List(config.Protect) }) // most readers ask for no pod
	v := &view.Cluster{
		DryRun: config.AllDryRun(), EvictionsOff: !config.Enabled, Pods: count, PodsSynced: list.Synced,
		PodOf:      func(cgroupUID string) (pods.Pod, bool) { return all().ByCgroupUID(cgroupUID) },
		StaleSince: list.StaleSince, StaleReason: list.StaleBecause, StatusWrites: map[string]uint64{},
		Heartbeat: c.heartbeat.view(), NodeLease: c.nodeLease.view(),
	}
	if conditions := c.conditions.Load(); conditions != nil {
		v.Conditions = []evict.Condition{}
		for _, m := range *conditions {
			v.Conditions = append(v.Conditions, evict.Condition(m))
		}
	}
	for why, n := range c.status.Writes() {
		v.StatusWrites[string(why)] = n
	}
	v.Evictions, v.Suppressed = tally.Counts()
	return v
}

// staleReady is how long the API server may give no answer while the agent
// stays ready.
const staleReady = time.Minute

// ready fails until the pods are listed once, and while a heartbeat is not
// renewed.
func (c *cluster) ready() error {
	if !c.pods.Synced() {
		return errors.New("pods: not listed yet")
	}
	if since := c.pods.StaleSince(); !since.IsZero() && time.Since(since) > staleReady {
		return fmt.Errorf("pods: no answer from the API server for %s", time.Since(since).Round(time.Second))
	}
	if err := c.heartbeat.ready(); err != nil {
		return err
	}
	if err := c.nodeLease.ready(); err != nil {
		return fmt.Errorf("%s: %w", nodeLeaseNamespace, err)
	}
	return nil
}

// writeState waits no longer than saveTimeout for the disk. It writes over nothing that is not
// read yet.
func (c *cluster) writeState(m evict.State) error {
	if c.late != nil {
		return state.ErrTimeout
	}
	save, err := c.store.Prepare(m)
	if err != nil {
		return err
	}
	return c.writer.Do(c.saveTimeout, save)
}

// nodeTimeout bounds reading the Node: without the Node no pod is evicted.
const nodeTimeout = 2 * time.Second

func (c *cluster) getNode(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	node, err := c.nodes.Nodes().Get(ctx, c.node, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	// A kubelet copies it from the kernel; a Node without kubelet has none.
	if theirs := node.Status.NodeInfo.BootID; theirs != "" && c.bootID != "" && theirs != c.bootID {
		return nil, fmt.Errorf("node %s is another machine: its boot ID is %s, this host's is %s", c.node, theirs, c.bootID)
	}
	return node, nil
}

// bootID of this host; empty if the kernel has none.
func bootID(procfs string) string {
	b, err := os.ReadFile(filepath.Join(procfs, "sys/kernel/random/boot_id"))
	if err != nil {
		return "" // then it is not compared with the Node's
	}
	return strings.TrimSpace(string(b))
}
