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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	plugins, drain := filepath.Join(dir, "plugins"), filepath.Join(dir, "drain")
	if err := os.Mkdir(plugins, 0o700); err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"-plugins", plugins}, {"-drain", drain}} {
		served := exec.CommandContext(ctx, o.load, args...)
		served.Stderr = os.Stderr
		served.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := served.Start(); err != nil {
			return nil, err
		}
		defer func() { _ = served.Process.Kill(); _ = served.Wait() }() // it has nothing to keep
	}
	plain, err := connectPlain(ctx, drain)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plain.Close()) }()

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
		row, err := roundsWith(ctx, o, host, plain, n)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// roundsWith measures rounds with so many pods.
func roundsWith(ctx context.Context, o *options, host *outer.Host, plain sockets, n int) (Row, error) {
	shown, size, err := wired(n)
	if err != nil {
		return Row{}, err
	}
	ask := func() (heard int) {
		c, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		now := time.Now()
		answered := map[string]bool{}
		for _, v := range host.Ask(c, outer.Round{Time: now, Pods: shown, Graces: atOnce{}, MaxAge: time.Minute}) {
			answered[v.Plugin] = true
		}
		return len(answered)
	}
	if err := registered(ctx, ask); err != nil {
		return Row{}, err
	}
	var cpu, took, writes []time.Duration
	bytes := make([]byte, 2*size)
	for range 4 * o.ticks {
		start := time.Now()
		heard := 0
		used, err := cpuTime(func() error { heard = ask(); return nil })
		waited := time.Since(start)
		if err == nil && heard != outerPlugins {
			err = fmt.Errorf("%d of %d plugins answered", heard, outerPlugins)
		}
		if err := errors.Join(err, wait(ctx, 10*time.Millisecond)); err != nil {
			return Row{}, err
		}
		write, err := cpuTime(func() error { return plain.write(bytes) })
		if err := errors.Join(err, wait(ctx, 10*time.Millisecond)); err != nil {
			return Row{}, err
		}
		cpu, took, writes = append(cpu, used), append(took, waited), append(writes, write)
	}
	mine, theirs := medianOfMeans(cpu, chunk), medianOfMeans(writes, chunk)
	row := Row{
		What: fmt.Sprintf("a round of %d outer plugins, %s of %.1f kB each", outerPlugins, podCount(n), float64(size)/1e3/float64(n)),
		Ours: fmt.Sprintf("%s of CPU; %s until all have answered (p99); %.1f MB sent", short(mine), short(quantile(took, 0.99)), 2*outerPlugins*float64(size)/1e6),
		Peer: "writes of as many bytes to as many sockets: " + short(theirs), Ratio: digits(over(mine, theirs)) + " ×",
		Note: "Every 5 s; two questions to each plugin, both with all pods. The plugins are another process, whose work for the answers is part of the time and not of the CPU. So is the process that reads what is written plainly.",
	}
	if n == peersAt {
		row.Goal = AtMost(float64(outerLimit), float64(mine), short(outerLimit))
	}
	return row, nil
}

// sockets are connections to a process that reads what is written and keeps nothing.
type sockets []net.Conn

// connectPlain makes one for each plugin.
func connectPlain(ctx context.Context, path string) (all sockets, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = until(ctx, path, func() error {
		c, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err != nil {
			return err
		}
		all = append(all, c)
		if len(all) < outerPlugins {
			return fmt.Errorf("%d of %d connections", len(all), outerPlugins)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, all.Close())
	}
	return all, nil
}

// write writes the same to all at the same time, in pieces as large as gRPC's.
func (s sockets) write(bytes []byte) error {
	var g errgroup.Group
	for _, c := range s {
		g.Go(func() error {
			for piece := range slices.Chunk(bytes, 32<<10) {
				if _, err := c.Write(piece); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// Close closes them.
func (s sockets) Close() error {
	var errs []error
	for _, c := range s {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// registered waits until all answer.
func registered(ctx context.Context, ask func() int) error {
	for start := time.Now(); ask() < outerPlugins; {
		if time.Since(start) > 30*time.Second {
			return fmt.Errorf("fewer than %d plugins answer", outerPlugins)
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
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
