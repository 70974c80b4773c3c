package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

const (
	veleroNamespace = "velero"
	nodeAgentConfig = "node-agents"
)

const controllerConfig = `apiVersion: plimsoll.dev/v1alpha1
kind: ControllerConfiguration
web: {listenAddresses: ["127.0.0.1:0"]}
velero: [{namespace: velero}]
backups: {enabled: true, limit: 4}
vgdp: {enabled: true}
`

// startVelero starts its server as it is handed out, but for one flag.
func (s *show) startVelero(ctx context.Context) (undo func() error, err error) {
	if err := s.namespace(ctx, veleroNamespace); err != nil {
		return nil, err
	}
	s.velero, err = velero.NewServer(ctx, s.cluster, veleroNamespace, filepath.Join(s.dir, "velero"), "--disable-controllers=backup-queue", "--concurrent-backups=4")
	if err != nil {
		return nil, err
	}
	if s.dynamic, err = dynamic.NewForConfig(s.cluster.Admin); err != nil {
		return nil, err
	}
	s.say("an unmodified Velero server runs, with its plugin for S3 and an object store; --disable-controllers=backup-queue hands its queue over")
	return nil, nil
}

func (s *show) namespace(ctx context.Context, name string) error {
	_, err := s.cluster.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// startController starts it with the rights that deploy/ grants.
func (s *show) startController(ctx context.Context) (undo func() error, err error) {
	if err := s.cluster.Apply(ctx, deploy.ControllerRBAC, deploy.GateCRD, deploy.Gate, deploy.GateMutating); err != nil {
		return nil, err
	}
	kubeconfig, err := s.cluster.ServiceAccount(ctx, "plimsoll-system", "plimsoll-controller", cluster.BoundTo{})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.config("controller"), []byte(controllerConfig), 0o600); err != nil {
		return nil, err
	}
	undo, err = s.daemon("controller", "--kubeconfig", kubeconfig)
	s.say("plimsoll controller runs, with the rights of deploy/rbac-controller.yaml")
	return undo, err
}

// daemon starts one of ours with its configuration; its log is in a file.
func (s *show) daemon(role string, args ...string) (undo func() error, err error) {
	log, err := os.Create(s.log(role))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(s.plimsoll, append([]string{role, "--config", s.config(role)}, args...)...) //nolint:noctx // it is ended by its own signal
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return func() error {
		return errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait(), log.Close())
	}, nil
}

func (s *show) config(role string) string { return filepath.Join(s.dir, role+".yaml") }

func (s *show) log(role string) string { return filepath.Join(s.dir, role+".log") }

// queue makes three Backups, of which two have a namespace in common. The object
// store stands still meanwhile, so that the first one lasts.
func (s *show) queue(ctx context.Context) (undo func() error, err error) {
	for _, name := range []string{"shop", "web"} {
		if err := s.namespace(ctx, name); err != nil {
			return nil, err
		}
	}
	if err := s.velero.Store.Pause(); err != nil {
		return nil, err
	}
	backups := s.dynamic.Resource(velero.Resource()).Namespace(veleroNamespace)
	for _, b := range []struct {
		name    string
		of      []any
		becomes string
	}{{"one", []any{"shop"}, "InProgress"}, {"two", []any{"shop", "web"}, "Queued"}, {"three", []any{"default"}, "InProgress"}} {
		_, err := backups.Create(ctx, object("velero.io/v1", "Backup", b.name, map[string]any{"includedNamespaces": b.of, "storageLocation": "default"}), metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if err := s.phase(ctx, velero.Resource(), b.name, b.becomes); err != nil {
			return nil, err
		}
	}
	s.say("three Backups: one of shop, two of shop and web, three of default; velero backup get says:")
	if err := s.print(s.velero.Command(ctx, "backup", "get")); err != nil {
		return nil, err
	}
	s.say("plimsoll explain backup -n velero two says:")
	if err := s.explained(ctx, "backup", "two"); err != nil {
		return nil, err
	}
	if err := s.velero.Store.Resume(); err != nil {
		return nil, err
	}
	for _, name := range []string{"one", "two", "three"} {
		if err := s.phase(ctx, velero.Resource(), name, "Completed"); err != nil {
			return nil, err
		}
	}
	s.say("all three are completed")
	return nil, nil
}

func object(version, kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name, "namespace": veleroNamespace}, "spec": spec,
	}}
}

// phase waits until an object of Velero's is in it.
func (s *show) phase(ctx context.Context, of schema.GroupVersionResource, name, phase string) error {
	return s.until(ctx, name+" is "+phase, func() error {
		u, err := s.dynamic.Resource(of).Namespace(veleroNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		is, _, err := unstructured.NestedString(u.Object, "status", "phase")
		if err == nil && is != phase {
			err = fmt.Errorf("it is %q", is)
		}
		return err
	})
}

// explained by plimsoll explain.
func (s *show) explained(ctx context.Context, kind, name string) error {
	return s.print(exec.CommandContext(ctx, s.plimsoll, "explain", kind, "-n", veleroNamespace, name, "--kubeconfig", s.cluster.Kubeconfig, "--config", s.config("controller")).CombinedOutput())
}

// print what a program said.
func (s *show) print(out []byte, err error) error {
	fmt.Println("\n" + strings.TrimRight(string(out), "\n") + "\n")
	return err
}

// startNodeAgent starts what looks like Velero's to the controller, and does
// with loads what that does; nothing is moved.
func (s *show) startNodeAgent(ctx context.Context) (undo func() error, err error) {
	core := s.cluster.Client.CoreV1()
	_, err = core.ConfigMaps(veleroNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: nodeAgentConfig}, Data: map[string]string{"config": `{"loadConcurrency":{"globalConfig":2}}`},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	_, err = core.Pods(veleroNamespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "node-agent", Labels: map[string]string{"role": "node-agent"}},
		Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{
			Name: "node-agent", Image: "none", Command: []string{"sh", "-c", "sleep 3600 & wait", "node-agent", "server", "--node-agent-configmap=" + nodeAgentConfig},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	agent := velero.StandInAgent{
		Client: s.dynamic, Core: s.cluster.Client, Namespace: veleroNamespace, Node: nodeName, Concurrency: 2,
		Prepares: 200 * time.Millisecond, Moves: time.Second,
	}
	living, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(living) }()
	s.say("a STAND-IN for Velero's node-agent takes up loads on %s; it moves no data", nodeName)
	return func() error { stop(); return <-ended }, nil
}

func volumeBackups() schema.GroupVersionResource { return velero.LoadResources()["PodVolumeBackup"] }

// hold waits until the node is hard, and then has a load made.
func (s *show) hold(ctx context.Context) (undo func() error, err error) {
	err = s.until(ctx, "the controller knows that the node takes no new loads", func() error {
		holds, err := s.dynamic.Resource(gate.Resource()).Namespace(veleroNamespace).Get(ctx, gate.Holds, metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, is, err := unstructured.NestedFieldNoCopy(holds.Object, "spec", "holds", nodeName)
		if err == nil && !is {
			err = errors.New("it takes them")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	_, err = s.dynamic.Resource(volumeBackups()).Namespace(veleroNamespace).Create(ctx, object("velero.io/v1", "PodVolumeBackup", "nightly", map[string]any{
		"backupStorageLocation": "default", "node": nodeName, "repoIdentifier": "r", "volume": "data",
		"pod": map[string]any{"kind": "Pod", "namespace": "default", "name": "steady"},
	}), metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	s.say("a PodVolumeBackup was made; plimsoll explain load -n velero pvb/nightly says:")
	return nil, s.explained(ctx, "load", "pvb/nightly")
}

// letGo waits until the load has gone on.
func (s *show) letGo(ctx context.Context) (undo func() error, err error) {
	if err := s.phase(ctx, volumeBackups(), "nightly", "Completed"); err != nil {
		return nil, err
	}
	s.say("the PodVolumeBackup has gone on, and is completed")
	return nil, nil
}
