package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

const veleroNamespace = "velero"

const controllerConfig = `apiVersion: plimsoll.dev/v1alpha1
kind: ControllerConfiguration
web: {listenAddresses: ["127.0.0.1:0"]}
velero: [{namespace: velero}]
backups: {enabled: true, limit: 4}
vgdp: {enabled: true}
`

// veleroActs are the parts of the demonstration about Velero: its Backups, and its data
// mover loads.
type veleroActs struct {
	*show
	server  *velero.Server
	dynamic dynamic.Interface
}

// startVelero starts its server as it is handed out, but for one flag.
func (v *veleroActs) startVelero(ctx context.Context) (undo func() error, err error) {
	if err := v.namespace(ctx, veleroNamespace); err != nil {
		return nil, err
	}
	v.server, err = velero.NewServer(ctx, v.cluster, veleroNamespace, filepath.Join(v.dir, "velero"), "--disable-controllers=backup-queue", "--concurrent-backups=4")
	if err != nil {
		return nil, err
	}
	if v.dynamic, err = dynamic.NewForConfig(v.cluster.Admin); err != nil {
		return nil, err
	}
	v.say("an unmodified Velero server runs, with its plugin for S3 and an object store; --disable-controllers=backup-queue hands its queue over")
	return nil, nil
}

func (v *veleroActs) namespace(ctx context.Context, name string) error {
	_, err := v.cluster.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// startController starts it with the rights that deploy/ grants.
func (v *veleroActs) startController(ctx context.Context) (undo func() error, err error) {
	if err := v.cluster.Apply(ctx, deploy.ControllerRBAC, deploy.GateCRD, deploy.Gate, deploy.GateMutating); err != nil {
		return nil, err
	}
	kubeconfig, err := v.cluster.ServiceAccount(ctx, "plimsoll-system", "plimsoll-controller", cluster.BoundTo{})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(v.config("controller"), []byte(controllerConfig), 0o600); err != nil {
		return nil, err
	}
	undo, err = v.daemon("controller", "--kubeconfig", kubeconfig)
	v.say("plimsoll controller runs, with the rights of deploy/rbac-controller.yaml")
	return undo, err
}

// queue makes three Backups, of which two have a namespace in common. The object
// store stands still meanwhile, so that the first one lasts.
func (v *veleroActs) queue(ctx context.Context) (undo func() error, err error) {
	for _, name := range []string{"shop", "web"} {
		if err := v.namespace(ctx, name); err != nil {
			return nil, err
		}
	}
	if err := v.server.Store.Pause(); err != nil {
		return nil, err
	}
	backups := v.dynamic.Resource(velero.Resource()).Namespace(veleroNamespace)
	for _, b := range []struct {
		name    string
		of      []any
		becomes string
	}{{"one", []any{"shop"}, "InProgress"}, {"two", []any{"shop", "web"}, "Queued"}, {"three", []any{"default"}, "InProgress"}} {
		_, err := backups.Create(ctx, object("velero.io/v1", "Backup", b.name, map[string]any{"includedNamespaces": b.of, "storageLocation": "default"}), metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if err := v.phase(ctx, velero.Resource(), b.name, b.becomes); err != nil {
			return nil, err
		}
	}
	v.say("three Backups: one of shop, two of shop and web, three of default; velero backup get says:")
	if err := v.print(v.server.Command(ctx, "backup", "get")); err != nil {
		return nil, err
	}
	v.say("plimsoll explain backup -n velero two says:")
	if err := v.explained(ctx, "backup", "two"); err != nil {
		return nil, err
	}
	if err := v.server.Store.Resume(); err != nil {
		return nil, err
	}
	for _, name := range []string{"one", "two", "three"} {
		if err := v.phase(ctx, velero.Resource(), name, "Completed"); err != nil {
			return nil, err
		}
	}
	v.say("all three are completed")
	return nil, nil
}

func object(version, kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name, "namespace": veleroNamespace}, "spec": spec,
	}}
}

// phase waits until an object of Velero's is in it.
func (v *veleroActs) phase(ctx context.Context, of schema.GroupVersionResource, name, phase string) error {
	return v.until(ctx, name+" is "+phase, func() error {
		u, err := v.dynamic.Resource(of).Namespace(veleroNamespace).Get(ctx, name, metav1.GetOptions{})
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
func (v *veleroActs) explained(ctx context.Context, kind, name string) error {
	return v.print(exec.CommandContext(ctx, v.plimsoll, "explain", kind, "-n", veleroNamespace, name, "--kubeconfig", v.cluster.Kubeconfig, "--config", v.config("controller")).CombinedOutput())
}

// nodeAgents is what Velero's own command line installs of its node-agent as far
// as that reads it, and its configuration.
const nodeAgents = `
apiVersion: v1
kind: ConfigMap
metadata: {name: node-agents, namespace: velero}
data: {config: '{"loadConcurrency":{"globalConfig":2}}'}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: node-agent, namespace: velero}
spec:
  selector: {matchLabels: {role: node-agent}}
  template:
    metadata: {labels: {role: node-agent}}
    spec:
      containers: [{name: node-agent, image: none, command: [sh, -c, "sleep 3600 & wait", node-agent, server, --node-agent-configmap=node-agents]}]
      volumes: [{name: host-pods, hostPath: {path: /var/lib/kubelet/pods}}]
`

// startNodeAgent starts Velero's own, beside the pod that bears its name, over a
// stand-in for who runs its data movers.
func (v *veleroActs) startNodeAgent(ctx context.Context) (undo func() error, err error) {
	if err := v.cluster.Apply(ctx, []byte(nodeAgents)); err != nil {
		return nil, err
	}
	root, err := v.volumes(ctx)
	if err != nil {
		return nil, err
	}
	as, err := v.cluster.User("velero", "system:masters")
	if err != nil {
		return nil, err
	}
	agent, err := velero.NodeAgent(ctx, v.cluster, as, root, veleroNamespace, nodeName, "node-agents")
	if err != nil {
		return nil, err
	}
	if err := agent.Start(); err != nil {
		return nil, err
	}
	movers := velero.StandInStorage{Core: v.cluster.Client, Namespace: veleroNamespace, Moves: time.Second}
	living, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- movers.Run(living) }()
	v.say("an unmodified Velero node-agent runs for %s; a STAND-IN pretends that the pods of its data movers run: no data is moved", nodeName)
	return func() error { stop(); return <-ended }, agent.WaitReady(ctx)
}

// volumes of the Node's pods, where the node-agent looks for them.
func (v *veleroActs) volumes(ctx context.Context) (root velero.Root, err error) {
	root = velero.Root(filepath.Join(v.dir, "node"))
	return root, v.until(ctx, "the pod of the node-agent runs", func() error {
		pods, err := v.cluster.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running,spec.nodeName=" + nodeName})
		if err == nil && len(pods.Items) < 2 {
			err = fmt.Errorf("%d pods run", len(pods.Items))
		}
		for i := range pods.Items {
			err = errors.Join(err, root.Mount(&pods.Items[i]))
		}
		return err
	})
}

func volumeBackups() schema.GroupVersionResource { return velero.LoadResources()["PodVolumeBackup"] }

// hold waits until the node is hard, and then has a load made.
func (v *veleroActs) hold(ctx context.Context) (undo func() error, err error) {
	err = v.until(ctx, "the controller knows that the node takes no new loads", func() error {
		holds, err := v.dynamic.Resource(gate.Resource()).Namespace(veleroNamespace).Get(ctx, gate.Holds, metav1.GetOptions{})
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
	if err := v.backUp(ctx); err != nil {
		return nil, err
	}
	v.say("a PodVolumeBackup was made; plimsoll explain load -n velero pvb/nightly says:")
	return nil, v.explained(ctx, "load", "pvb/nightly")
}

// backUp the quiet pod's volume, as part of a Backup.
func (v *veleroActs) backUp(ctx context.Context) error {
	of, err := v.dynamic.Resource(velero.Resource()).Namespace(veleroNamespace).Get(ctx, "three", metav1.GetOptions{})
	if err != nil {
		return err
	}
	pod, err := v.running(ctx, "steady")
	if err != nil {
		return err
	}
	load := object("velero.io/v1", "PodVolumeBackup", "nightly", map[string]any{
		"backupStorageLocation": "default", "node": nodeName, "repoIdentifier": "r", "uploaderType": "kopia", "volume": "data",
		"pod": map[string]any{"kind": "Pod", "namespace": pod.Namespace, "name": pod.Name},
	})
	load.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "velero.io/v1", Kind: "Backup", Name: of.GetName(), UID: of.GetUID()}})
	_, err = v.dynamic.Resource(volumeBackups()).Namespace(veleroNamespace).Create(ctx, load, metav1.CreateOptions{})
	return err
}

// letGo waits until the load has gone on.
func (v *veleroActs) letGo(ctx context.Context) (undo func() error, err error) {
	if err := v.phase(ctx, volumeBackups(), "nightly", "Completed"); err != nil {
		return nil, err
	}
	v.say("the PodVolumeBackup has gone on, and is completed")
	return nil, nil
}
