package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	fleets "github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// throng is many agents that beat.
type throng struct {
	*beats
	interval time.Duration
	beaten   atomic.Uint64
	dead     sync.Map // names of those that fell silent
}

// many agents, spread over each interval by several writers.
func (b *beats) many(writers int, interval time.Duration) *throng {
	b.t.Helper()
	c := &throng{beats: b, interval: interval}
	var all sync.WaitGroup
	ctx, start := b.t.Context(), time.Now()
	for w := range writers {
		all.Go(func() {
			for i := w; ctx.Err() == nil; i += writers {
				c.beat(ctx, start, i)
			}
		})
	}
	b.t.Cleanup(all.Wait) // the test's context is done by then
	return c
}

// beat waits until it is time for beat i of all, and writes it.
func (c *throng) beat(ctx context.Context, start time.Time, i int) {
	n := len(c.names)
	select {
	case <-ctx.Done():
		return
	case <-time.After(time.Until(start.Add(time.Duration(i) * c.interval / time.Duration(n)))):
	}
	name := c.names[i%n]
	if _, is := c.dead.Load(name); !is && c.renew(ctx, name, nil) == nil {
		c.beaten.Add(1)
	}
}

// populate with so many agents, without conditions, until the test ends.
func (b *beats) populate(n, writers int) {
	b.t.Helper()
	for i := range n {
		b.names = append(b.names, fmt.Sprintf("n%04d", i))
	}
	leases := b.c.Client.CoordinationV1().Leases(lease.Namespace)
	b.t.Cleanup(func() {
		ctx := contextWithoutCancel(b.t)
		b.each(writers, func(name string) error {
			return errors.Join(gone(b.c.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})), gone(leases.Delete(ctx, name, metav1.DeleteOptions{})))
		})
	})
	b.each(writers, func(name string) error {
		_, err := b.c.AddNode(b.t.Context(), name, nil)
		now := lease.Micro(time.Now())
		_, err2 := leases.Create(b.t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(40)), RenewTime: &now},
		}, metav1.CreateOptions{})
		return errors.Join(err, err2)
	})
}

// each agent, by several writers.
func (b *beats) each(writers int, do func(name string) error) {
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := w; i < len(b.names); i += writers {
				if err := do(b.names[i]); err != nil {
					b.t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// used so much CPU since its start, and memory that is resident at most.
func used(t *testing.T, pid int) (cpu time.Duration, peak string) {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	require.NoError(t, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	require.NoError(t, err)
	return time.Duration(user+system) * 10 * time.Millisecond, regexp.MustCompile(`VmHWM:\s+(.*)`).FindStringSubmatch(string(status))[1]
}

// bareWatchEnv is the kubeconfig with which this test binary is nothing but [watchBare].
const bareWatchEnv = "PLIMSOLL_E2E_BARE_WATCH"

// watchBare watches the agents' Leases and keeps nothing of them: what client-go, HTTP/2 and
// TLS take by themselves. It says on standard output when it begins.
func watchBare(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	leases := client.CoordinationV1().Leases(lease.Namespace)
	list, err := leases.List(context.Background(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	w, err := leases.Watch(context.Background(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	fmt.Println("watches")
	for range w.ResultChan() {
	}
	return errors.New("the watch has ended")
}

// bareWatch starts one, and returns its pid.
func (b *beats) bareWatch() int {
	b.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), bareWatchEnv+"="+b.c.Kubeconfig)
	out, err := cmd.StdoutPipe()
	require.NoError(b.t, err)
	require.NoError(b.t, cmd.Start())
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b.t, err)
	require.Equal(b.t, "watches\n", line)
	return cmd.Process.Pid
}

// All on one API server: first what is measured in its etcd, last what makes it slow
// and ends it.
func TestManyAgents(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Without: []string{cluster.ControllerManager, cluster.Scheduler}})
	t.Run("bytes in etcd", func(t *testing.T) { heartbeatBytesInEtcd(t, c) })
	t.Run("silence at scale", func(t *testing.T) { agentSilenceAtScale(t, c) })
	t.Run("who", func(t *testing.T) { whoOfManyAgents(t, c) })
	t.Run("heartbeats do not storm", func(t *testing.T) { heartbeatsDoNotStorm(t, c) })
}

func agentSilenceAtScale(t *testing.T, c *cluster.Cluster) {
	n, interval, grace, window := 100, 2*time.Second, 8*time.Second, 5*time.Second
	if os.Getenv("PLIMSOLL_LONG") != "" {
		n, interval, grace, window = 5000, 10*time.Second, 40*time.Second, 30*time.Second
	}
	b := newBeats(t, c, 0, "")
	write(t, b.config, fmt.Sprintf("apiVersion: plimsoll.dev/v1alpha1\nkind: ControllerConfiguration\nvelero: [{namespace: nobody}]\nagents: {monitorGracePeriod: %s}\n", grace))
	b.populate(n, 8)
	dead := b.names[n/2]
	b.status(dead, "True", "Hard")
	beating := b.many(32, interval)
	a, bare := b.leads(), b.bareWatch()
	eventually(t, "none is silent", func() error { return wanted(shown(a).Agents[fleets.Silent], 0) })
	from := time.Now()
	cpu, _ := used(t, a.cmd.Process.Pid)
	bareCPU, _ := used(t, bare)
	renewals := beating.beaten.Load()
	within(t, window+patience, "the window", func() error {
		if time.Since(from) < window {
			return errors.New("not over")
		}
		return nil
	})
	now, peak := used(t, a.cmd.Process.Pid)
	bareNow, _ := used(t, bare)
	took := time.Since(from)
	share := float64(now-cpu) / float64(took)
	t.Logf("%d agents, %.0f renewals/s: %.1f %% of a core, %s resident at most; a bare watch of their Leases: %.1f %%",
		n, float64(beating.beaten.Load()-renewals)/took.Seconds(), 100*share, peak, 100*float64(bareNow-bareCPU)/float64(took))
	assert.Less(t, share, 0.20, "wanted: 5 % of a core of an idle machine")
	kib, err := strconv.Atoi(strings.Fields(peak)[0])
	require.NoError(t, err)
	assert.Less(t, kib, 2*150<<10, "wanted: 150 MiB")

	clock := deadline.Start()
	beating.dead.Store(dead, true)
	b.become(dead, silently, 2*grace+patience)
	last, err := c.Client.CoordinationV1().Leases(lease.Namespace).Get(t.Context(), dead, metav1.GetOptions{})
	require.NoError(t, err)
	took = time.Since(last.Spec.RenewTime.Time)
	t.Logf("the one that fell silent is Unknown %s after its last beat; the grace period is %s", took.Round(10*time.Millisecond), grace)
	assert.Less(t, took, clock.Stretch(grace+2*2*time.Second), "promised: grace + 2 s")
	eventually(t, "it is counted", func() error { return wanted(shown(a).Agents[fleets.Silent], 1) })
}
