package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	stocklease "k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// beatTiming is how often Leases are renewed, and how long each fault is
// watched.
type beatTiming struct{ interval, duration, watched time.Duration }

func faultTiming() beatTiming {
	if os.Getenv("PLIMSOLL_LONG") != "" {
		return beatTiming{10 * time.Second, 40 * time.Second, 2 * time.Minute}
	}
	return beatTiming{2 * time.Second, 8 * time.Second, 14 * time.Second}
}

// patient is one node whose Lease somebody renews along a path of its own.
type patient struct {
	node   string
	path   *path
	offset atomic.Int64 // of its clock
	c      *cluster.Cluster
}

func (p *patient) now() time.Time { return time.Now().Add(time.Duration(p.offset.Load())) }

// shifted is the clock of a stock controller.
type shifted struct {
	clock.RealClock
	p *patient
}

func (s shifted) Now() time.Time { return s.p.now() }

// ours beats until ctx is done.
func ours(ctx context.Context, t *testing.T, p *patient, how *rest.Config, in string, timing beatTiming) {
	line, err := lease.NewConnection(p.path.config(how))
	if err != nil {
		t.Error(err)
		return
	}
	b := &lease.Heartbeat{
		Node: p.node, Namespace: in, Holder: "plimsoll-agent/" + p.node, Connection: line,
		Interval: timing.interval, Duration: timing.duration, Uptime: bootTime, Now: p.now,
	}
	assert.NoError(t, b.Run(ctx))
}

func bootTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // Linux has it
	return time.Duration(ts.Nano())
}

// stock is Kubernetes' own, set up as the kubelet does.
func stock(ctx context.Context, t *testing.T, p *patient, how *rest.Config, in string, timing beatTiming) {
	config := p.path.config(how)
	config.QPS, config.Timeout = -1, timing.duration
	dialer := connrotation.NewDialer(new(net.Dialer).DialContext)
	config.Dial = dialer.DialContext
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Error(err)
		return
	}
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(slog.DiscardHandler))
	stocklease.NewController(shifted{p: p}, client, p.node, int32(timing.duration/time.Second), dialer.CloseAll, timing.interval, p.node, in, func(l *coordinationv1.Lease) error {
		if len(l.OwnerReferences) > 0 {
			return nil
		}
		node, err := client.CoreV1().Nodes().Get(ctx, p.node, metav1.GetOptions{})
		if err == nil {
			l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
		}
		return err
	}).Run(ctx)
}

// fault is something that goes wrong, and what it may cost.
type fault struct {
	name string
	// break it; what it starts ends with ctx.
	do func(ctx context.Context, t *testing.T, p *patient)
	// away is for how long nothing could be renewed.
	away time.Duration
	// gap is the longest between two renewals; 0: little more than the interval.
	gap time.Duration
}

func mind(p *patient, f func(n int) (time.Duration, int)) { p.path.Mind.Store(&f) }

// twoOfThree are refused.
func twoOfThree(status int) func(context.Context, *testing.T, *patient) {
	return func(_ context.Context, _ *testing.T, p *patient) {
		mind(p, func(n int) (time.Duration, int) {
			if n%3 != 0 {
				return 0, status
			}
			return 0, 0
		})
	}
}

func faults() []fault {
	return []fault{
		{"nothing", func(context.Context, *testing.T, *patient) {}, 0, 0},
		{"black-holed", func(_ context.Context, _ *testing.T, p *patient) { p.path.blackHole() }, 0, 0},
		{"half-open", func(_ context.Context, _ *testing.T, p *patient) { p.path.swallow() }, 0, 0},
		{"reset", func(_ context.Context, _ *testing.T, p *patient) { p.path.reset() }, 0, 0},
		{"every other request takes 30 s", func(_ context.Context, _ *testing.T, p *patient) {
			mind(p, func(n int) (time.Duration, int) { return time.Duration(n%2) * 30 * time.Second, 0 })
		}, 0, 0},
		{"every request takes 1.5 s", func(_ context.Context, _ *testing.T, p *patient) {
			mind(p, func(int) (time.Duration, int) { return 1500 * time.Millisecond, 0 })
		}, 0, 0},
		{"429 for two of three", twoOfThree(http.StatusTooManyRequests), 0, 0},
		{"503 for two of three", twoOfThree(http.StatusServiceUnavailable), 0, 0},
		{"one of two API servers answers 503", func(_ context.Context, _ *testing.T, p *patient) { p.path.sicken() }, 0, faultTiming().duration - faultTiming().interval + 5*time.Second},
		{"somebody writes it all the time", disturbed, 0, 0},
		{"the lease is deleted", func(ctx context.Context, t *testing.T, p *patient) {
			assert.NoError(t, p.c.Client.CoordinationV1().Leases(lease.Namespace).Delete(ctx, p.node, metav1.DeleteOptions{}))
		}, 0, 0},
		{"the node is made anew after 3 s", remade, 3 * time.Second, 0},
		{"the clock is set back by 1 h", func(_ context.Context, _ *testing.T, p *patient) { p.offset.Store(int64(-time.Hour)) }, 0, 0},
		{"the clock is set forward by 1 h", func(_ context.Context, _ *testing.T, p *patient) { p.offset.Store(int64(time.Hour)) }, 0, 0},
		{"forward, and right again", func(ctx context.Context, _ *testing.T, p *patient) {
			p.offset.Store(int64(time.Hour))
			sleep(ctx, faultTiming().interval*3/2)
			p.offset.Store(0)
		}, 0, 0},
	}
}

// disturbed: another writer of the Lease.
func disturbed(ctx context.Context, t *testing.T, p *patient) {
	for i := 0; sleep(ctx, 50*time.Millisecond); i++ {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"somebody":"%d"}}}`, i)
		_, err := p.c.Client.CoordinationV1().Leases(lease.Namespace).Patch(ctx, p.node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if ctx.Err() == nil {
			assert.NoError(t, err)
		}
	}
}

func remade(ctx context.Context, t *testing.T, p *patient) {
	assert.NoError(t, p.c.Client.CoreV1().Nodes().Delete(ctx, p.node, metav1.DeleteOptions{}))
	sleep(ctx, 3*time.Second)
	_, err := p.c.AddNode(ctx, p.node, nil)
	assert.NoError(t, err)
}

// sleep is part of a fault's course; false when ctx is done.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// witness sees every write of a Lease, as whoever judges by them does.
type witness struct {
	mu   sync.Mutex // guards seen
	seen map[string][]sighting
}

// sighting of a renewal.
type sighting struct {
	at, written time.Time
	owner       types.UID
}

func newWitness(t *testing.T, c *cluster.Cluster) *witness {
	t.Helper()
	w := &witness{seen: map[string][]sighting{}}
	watching, err := c.Client.CoordinationV1().Leases(lease.Namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range watching.ResultChan() {
			if l, is := e.Object.(*coordinationv1.Lease); is && e.Type != watch.Deleted {
				w.note(l)
			}
		}
	}()
	t.Cleanup(func() { watching.Stop(); <-done })
	return w
}

// note a write that moved the time of renewal on; who judges by that sees no
// other.
func (w *witness) note(l *coordinationv1.Lease) {
	if l.Spec.RenewTime == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.seen[l.Name]
	s := sighting{time.Now(), l.Spec.RenewTime.Time, ""}
	if len(l.OwnerReferences) > 0 {
		s.owner = l.OwnerReferences[0].UID
	}
	if len(list) == 0 || s.written.After(list[len(list)-1].written) || s.owner != list[len(list)-1].owner {
		w.seen[l.Name] = append(list, s)
	}
}

func (w *witness) of(node string) []sighting {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[node]
}

// longestGap between two renewals from begin to end, the one that goes on at the
// end included.
func (w *witness) longestGap(node string, begin, end time.Time) time.Duration {
	last, longest := begin, time.Duration(0)
	for _, s := range w.of(node) {
		if s.at.After(end) {
			break
		}
		if s.at.After(begin) {
			longest = max(longest, s.at.Sub(last))
		}
		last = s.at
	}
	return max(longest, end.Sub(last))
}

func agentToken(t *testing.T, c *cluster.Cluster) *rest.Config {
	t.Helper()
	token, err := c.ServiceAccountConfig(t.Context(), "plimsoll-system", "plimsoll-agent", cluster.BoundTo{})
	require.NoError(t, err)
	return token
}

// stockToken may do what a kubelet may with its Lease and more.
func stockToken(t *testing.T, c *cluster.Cluster) *rest.Config {
	t.Helper()
	token, err := c.ServiceAccountConfig(t.Context(), "plimsoll-system", "stock", cluster.BoundTo{})
	require.NoError(t, err)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "stock-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "plimsoll-system", Name: "stock"}},
	}
	made, err := c.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, c.Client.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(t.Context()), made.Name, metav1.DeleteOptions{}))
	})
	return token
}

// The faults, each on two nodes of one real API server in the same run: one
// whose Lease our heartbeat renews, one whose Lease Kubernetes' own controller
// does.
func heartbeatFaults(t *testing.T, c *cluster.Cluster) {
	// One token for all, which is bound to no node: no policy may ask for one.
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC))
	tokens := map[string]*rest.Config{"ours": agentToken(t, c), "stock": stockToken(t, c)}
	timing, seen := faultTiming(), newWitness(t, c)
	all := faults()
	rows := make([]string, len(all))
	var running sync.WaitGroup
	for i, f := range all {
		nodes := map[string]*patient{}
		for _, who := range []string{"ours", "stock"} {
			name := fmt.Sprintf("beat-%d-%s", i, who)
			_, err := c.AddNode(t.Context(), name, nil)
			require.NoError(t, err)
			t.Cleanup(func() {
				assert.NoError(t, c.Client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}))
			})
			nodes[who] = &patient{node: name, c: c, path: newPath(t, c.Admin)}
		}
		running.Go(func() { rows[i] = suffer(t, f, nodes, tokens, timing, seen) })
	}
	running.Wait()
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "fault\tlongest gap\tdials\trequests\tstock controller: longest gap\tdials\trequests\n%s", strings.Join(rows, ""))
	require.NoError(t, table.Flush())
	t.Logf("interval %s, duration %s, each watched for %s\n%s", timing.interval, timing.duration, timing.watched, text.String())
}

// suffer lets one fault happen to both, and returns its row.
func suffer(t *testing.T, f fault, nodes map[string]*patient, tokens map[string]*rest.Config, timing beatTiming, seen *witness) string {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { ours(ctx, t, nodes["ours"], tokens["ours"], lease.Namespace, timing) })
	running.Go(func() { stock(ctx, t, nodes["stock"], tokens["stock"], lease.Namespace, timing) })
	for _, p := range nodes {
		for waited := deadline.Start(); len(seen.of(p.node)) < 2 && waited.Elapsed() < patience; {
			sleep(ctx, 20*time.Millisecond)
		}
	}
	begin, busy := time.Now(), deadline.Start()
	before := map[string][2]int64{}
	for who, p := range nodes {
		before[who] = [2]int64{p.path.dials.Load(), p.path.requests.Load()}
		running.Go(func() { f.do(ctx, t, p) })
	}
	sleep(ctx, timing.watched)
	end := time.Now()
	row := f.name
	for _, who := range []string{"ours", "stock"} {
		p := nodes[who]
		row += fmt.Sprintf("\t%.1f s\t%d\t%d", seen.longestGap(p.node, begin, end).Seconds(),
			p.path.dials.Load()-before[who][0], p.path.requests.Load()-before[who][1])
	}
	bound := cmp.Or(f.gap, 2*(timing.interval+2500*time.Millisecond)+f.away)
	assert.Less(t, bound, timing.watched, "%s: no gap could be longer", f.name)
	assert.LessOrEqual(t, seen.longestGap(nodes["ours"].node, begin, end), busy.Stretch(bound), f.name)
	if f.away > 0 {
		node, err := nodes["ours"].c.Client.CoreV1().Nodes().Get(ctx, nodes["ours"].node, metav1.GetOptions{})
		if assert.NoError(t, err) {
			list := seen.of(node.Name)
			assert.Equal(t, node.UID, list[len(list)-1].owner, "the lease of the new node")
		}
	}
	return row + "\n"
}
