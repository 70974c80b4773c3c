package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/e2e/bench/rpc"
	"github.com/plimsoll-dev/plimsoll/katalyst"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
)

// outerPlugins is how many plugins the load serves.
const outerPlugins = 10

// outerLimit is the goal of a round with the pods of the peers.
const outerLimit = 3 * time.Millisecond

// outerRounds measures a round of outer plugins, which are processes of their
// own and not measured, beside plain writes of as many bytes.
func outerRounds(ctx context.Context, o *options) (rows []Row, err error) {
	dir, err := os.MkdirTemp("", "plimsoll-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	plugins, drain, bare := filepath.Join(dir, "plugins"), filepath.Join(dir, "drain"), filepath.Join(dir, "grpc")
	if err := os.Mkdir(plugins, 0o700); err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"-plugins", plugins}, {"-drain", drain}, {"-grpc", bare}} {
		served := exec.CommandContext(ctx, o.load, args...)
		served.Stderr = os.Stderr
		served.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := served.Start(); err != nil {
			return nil, err
		}
		defer func() { _ = served.Process.Kill(); _ = served.Wait() }() // it has nothing to keep
	}
	var peers outerPeers
	defer func() { err = errors.Join(err, peers.Close()) }()
	if peers, err = connectPeers(ctx, drain, bare); err != nil {
		return nil, err
	}

	config := outer.DefaultConfig()
	config.Dirs = []string{plugins}
	host := &outer.Host{
		Settings: func() outer.Config { return config }, Procfs: "/proc", Log: slog.New(slog.DiscardHandler),
	}
	ctx, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- host.Run(ctx) }()
	defer func() { end(); err = errors.Join(err, <-ended) }()
	for _, n := range o.sizes {
		if n == 1 {
			continue
		}
		o.say("rounds of %d outer plugins, %s", outerPlugins, podCount(n))
		more, err := roundsWith(ctx, o, host, peers, n)
		if err != nil {
			return rows, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// roundsWith measures rounds with so many pods.
func roundsWith(ctx context.Context, o *options, host *outer.Host, peers outerPeers, n int) ([]Row, error) {
	shown, size, err := wired(n)
	if err != nil {
		return nil, err
	}
	heard := 0
	ask := func() error {
		c, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		now := time.Now()
		answered := map[string]bool{}
		for _, v := range host.Ask(c, outer.Round{Time: now, Pods: shown, Graces: atOnce{}, MaxAge: time.Minute}) {
			answered[v.Plugin] = true
		}
		if heard = len(answered); heard != outerPlugins {
			return fmt.Errorf("%d of %d plugins answered", heard, outerPlugins)
		}
		return nil
	}
	soon, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := until(soon, "plugins", ask); err != nil {
		return nil, err
	}
	bytes := make([]byte, size)
	var took []time.Duration
	turns := []struct {
		do   func() error
		used []time.Duration
	}{
		{do: func() error {
			start := time.Now()
			err := ask()
			took = append(took, time.Since(start))
			return err
		}},
		{do: func() error { return peers.write(bytes) }},
		{do: func() error { return peers.call(ctx, bytes) }},
	}
	for range 4 * o.ticks {
		for i := range turns {
			used, err := cpuTime(turns[i].do)
			if err := errors.Join(err, wait(ctx, 10*time.Millisecond)); err != nil {
				return nil, err
			}
			turns[i].used = append(turns[i].used, used)
		}
	}
	mine, written, called := medianOfMeans(turns[0].used, chunk), medianOfMeans(turns[1].used, chunk), medianOfMeans(turns[2].used, chunk)
	row := Row{
		What: fmt.Sprintf("a round of %d outer plugins, %s of %.1f kB each", outerPlugins, podCount(n), float64(size)/1e3/float64(n)),
		Ours: fmt.Sprintf("%s of CPU; %s until all have answered (p99); %.1f MB sent", short(mine), short(quantile(took, 0.99)), 2*outerPlugins*float64(size)/1e6),
		Peer: "writes of as many bytes to as many sockets: " + short(written), Ratio: digits(over(mine, written)) + " ×",
		Note: "Every 5 s; two questions to each plugin, both with all pods. The plugins are another process, whose work for the answers is part of the time and not of the CPU. So is the process that reads what is written plainly, and the server of the bare calls.",
	}
	if n == peersAt {
		row.Goal = AtMost(float64(outerLimit), float64(mine), short(outerLimit))
	}
	return []Row{row, {What: row.What, Ours: short(mine), Peer: "as many gRPC calls with as many bytes: " + short(called), Ratio: digits(over(mine, called)) + " ×"}}, nil
}

// outerPeers are, for each plugin, a connection to a process that reads what is written and
// keeps nothing, and one to a gRPC server that answers each call with nothing.
type outerPeers struct {
	sockets []net.Conn
	calls   []*grpc.ClientConn
}

// connectPeers makes them.
func connectPeers(ctx context.Context, drain, bare string) (p outerPeers, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = until(ctx, drain, func() error {
		c, err := new(net.Dialer).DialContext(ctx, "unix", drain)
		if err != nil {
			return err
		}
		p.sockets = append(p.sockets, c)
		if len(p.sockets) < outerPlugins {
			return fmt.Errorf("%d of %d connections", len(p.sockets), outerPlugins)
		}
		return nil
	})
	for err == nil && len(p.calls) < outerPlugins {
		var c *grpc.ClientConn
		if c, err = rpc.Dial(bare); err == nil {
			p.calls = append(p.calls, c)
		}
	}
	return p, err
}

// write writes the same twice to all at the same time, in pieces as large as gRPC's.
func (p outerPeers) write(bytes []byte) error {
	var g errgroup.Group
	for _, c := range p.sockets {
		g.Go(func() error {
			for range 2 {
				for piece := range slices.Chunk(bytes, 32<<10) {
					if _, err := c.Write(piece); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// call calls all at the same time, twice each.
func (p outerPeers) call(ctx context.Context, bytes []byte) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range p.calls {
		g.Go(func() error {
			for range 2 {
				if err := rpc.Call(ctx, c, bytes); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// Close closes them.
func (p outerPeers) Close() error {
	var errs []error
	for _, c := range p.sockets {
		errs = append(errs, c.Close())
	}
	for _, c := range p.calls {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// atOnce lets no threshold wait.
type atOnce struct{}

func (atOnce) Reported(plugins.Verdict, time.Time) time.Time { return time.Time{} }
func (atOnce) Missed(string)                                 {}
func (atOnce) Registered(string, string, time.Time)          {}

// wired are pods as the agent shows them: of two containers, with probes,
// volumes and conditions.
func wired(n int) (pods []katalyst.Pod, size int, err error) {
	for i := range n {
		p := aPod(i)
		wire, err := p.Marshal()
		if err != nil {
			return nil, 0, err
		}
		size += len(wire)
		pods = append(pods, katalyst.Pod{UID: string(p.UID), Wire: wire})
	}
	return pods, size, nil
}

func aPod(i int) *corev1.Pod {
	name := fmt.Sprintf("checkout-%08x-%05d", i/10, i)
	container := func(name string) corev1.Container {
		return corev1.Container{
			Name: name, Image: "registry.example/shop/" + name + "@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
			Ports:        []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			VolumeMounts: []corev1.VolumeMount{{Name: "cache", MountPath: "/cache"}, {Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
			},
			LivenessProbe: &corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 3},
		}
	}
	status := func(name string) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			Name: name, Ready: true, Image: "registry.example/shop/" + name + ":1.4.2",
			ContainerID: fmt.Sprintf("containerd://%064x", i), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}
	}
	condition := func(of corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: of, Status: corev1.ConditionTrue}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", UID: types.UID(fmt.Sprintf("%08x-0000-4000-8000-000000000000", i)),
			Labels:          map[string]string{"app.kubernetes.io/name": "checkout", "app.kubernetes.io/part-of": "shop", "pod-template-hash": "6d4cf56db6"},
			Annotations:     map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "checkout-6d4cf56db6", UID: "0a1b2c3d-0000-4000-8000-000000000001"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-a", ServiceAccountName: "checkout", PriorityClassName: "service",
			Containers: []corev1.Container{container("app"), container("proxy")},
			Volumes: []corev1.Volume{
				{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
			},
			Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, HostIP: "192.0.2.10", PodIP: "198.51.100.20",
			Conditions:        []corev1.PodCondition{condition(corev1.PodInitialized), condition(corev1.PodReady), condition(corev1.ContainersReady), condition(corev1.PodScheduled)},
			ContainerStatuses: []corev1.ContainerStatus{status("app"), status("proxy")},
		},
	}
}
