package vm_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/chart"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/vm"
	"github.com/plimsoll-dev/plimsoll/e2e/vm/oci"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// The API server as the machine reaches it, and the machine as the cluster calls it.
const (
	apiServerHost = "10.0.2.100"
	apiServerPort = "6443"
	nodeName      = "testvm"
)

// runtimeDir is containerd's, a filesystem of its own: /dev/vdd.
const runtimeDir = "/var/lib/containerd"

// kubeNode is a machine whose kubelet is a node of a control plane on the host.
type kubeNode struct {
	*node
	cluster *cluster.Cluster
	way     *wayIn    // nil: nothing reaches the kubelet and the pods
	since   time.Time // the end of the last stage
}

// kubeOptions of a node.
type kubeOptions struct {
	// kubelet is added to its configuration.
	kubelet string
	// serves has the kubelet listen, and the API server reach it and the pods as a real
	// one does: for kubectl exec and port-forward.
	serves bool
	// version of Plimsoll's image; imageVersion.
	version string
}

// startKubelet starts a control plane and a machine that is its only node, and
// waits until that is Ready. Containers are of the images that imageOf names; the
// programs of a node are there.
func startKubelet(t *testing.T, o kubeOptions) *kubeNode {
	t.Helper()
	vm.SkipUnfit(t)
	k := &kubeNode{node: &node{t: t}, since: time.Now()}
	control := cluster.Options{
		APIServerNames: []string{apiServerHost},
		Graces:         cluster.Graces{NodeMonitorPeriod: time.Second},
	}
	if o.serves {
		k.way = newWayIn(t)
		control.Args = map[string][]string{cluster.APIServer: {"--egress-selector-config-file=" + k.way.egress(t)}}
	}
	k.cluster = cluster.New(t, control)
	k.stage("control plane")
	share := k.share(o)
	k.stage("programs and images")
	k.VM = vm.Start(t, vm.Options{
		Name: nodeName, Disks: 3, Share: share,
		Forward: map[string]string{apiServerHost + ":" + apiServerPort: strings.TrimPrefix(k.cluster.Admin.Host, "https://")},
	})
	if k.way != nil {
		k.way.open(k.VM)
	}
	k.stage("booted")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("containerd, the kubelet and the kernel said:\n%s",
				k.run("journalctl -q --no-pager -n 60 -o cat -u containerd -u kubelet; dmesg | tail -20"))
		}
	})
	k.run("mkfs.ext4 -q /dev/vdd && mkdir -p " + runtimeDir + " && mount /dev/vdd " + runtimeDir)
	k.run("cp -r /share/etc / && ln -s /share/plimsoll /share/witness /share/recordfixture /root && systemctl daemon-reload && systemctl start containerd")
	k.stage("containerd")
	k.run("for i in /share/images/*; do ctr -n k8s.io images import $i || exit; done")
	k.stage("images imported")
	k.run("systemctl start kubelet")
	k.until(2*time.Minute, "the node takes pods", k.takesPods)
	k.stage("the node takes pods")
	return k
}

// share is the directory with all that the machine is given.
func (k *kubeNode) share(o kubeOptions) string {
	k.t.Helper()
	share := k.t.TempDir()
	require.NoError(k.t, os.CopyFS(share, os.DirFS(filepath.Join("testdata", "node"))))
	kubelet, err := cluster.Program(k.t.Context(), cluster.Kubelet)
	require.NoError(k.t, err)
	said, err := exec.CommandContext(k.t.Context(), "cp", kubelet, share).CombinedOutput()
	require.NoError(k.t, err, "%s", said)
	build(k.t, ".", filepath.Join(share, "plimsoll"))
	build(k.t, "./e2e/vm/witness", filepath.Join(share, "witness"))
	build(k.t, "./probes/recordfixture", filepath.Join(share, "recordfixture"))

	etc := filepath.Join(share, "etc", "kubernetes")
	config, err := os.ReadFile(filepath.Join(etc, "kubelet.yaml"))
	require.NoError(k.t, err)
	text := string(config) + o.kubelet
	if o.serves {
		require.Contains(k.t, text, deaf)
		text = strings.Replace(text, deaf, hearing, 1)
	}
	require.NoError(k.t, os.WriteFile(filepath.Join(etc, "kubelet.yaml"), []byte(text), 0o644))
	user, err := k.cluster.User("system:node:"+nodeName, "system:nodes")
	require.NoError(k.t, err)
	k.writeKubeconfig(filepath.Join(etc, "kubelet.conf"), clientcmdapi.AuthInfo{ClientCertificateData: user.CertData, ClientKeyData: user.KeyData})

	require.NoError(k.t, os.Mkdir(filepath.Join(share, "images"), 0o755))
	if long() {
		image := k.t.TempDir()
		require.NoError(k.t, chart.MakeImage("../..", image, cmp.Or(o.version, imageVersion), "ARCHES=amd64"))
		require.NoError(k.t, os.Rename(filepath.Join(image, "image.tar"), filepath.Join(share, "images", "plimsoll")))
	}
	for _, source := range []string{"./e2e/vm/pause", "./e2e/vm/hog", "./e2e/vm/steady", conntrack} {
		k.writeImage(filepath.Join(share, "images", path.Base(source)), source)
	}
	return share
}

// long is whether tests run in their long forms.
func long() bool { return os.Getenv("PLIMSOLL_LONG") != "" }

// conntrack is where the example of an outer plugin is.
const conntrack = "./plugins/outer/examples/conntrack"

// imageOf is the image with the program of that name, the last of its path.
func imageOf(program string) string { return "plimsoll.test/" + program + ":test" }

func (k *kubeNode) writeImage(file, source string) {
	k.t.Helper()
	name := path.Base(source)
	program := filepath.Join(k.t.TempDir(), name)
	build(k.t, source, program)
	f, err := os.Create(file)
	require.NoError(k.t, err)
	require.NoError(k.t, oci.Write(f, imageOf(name), program))
	require.NoError(k.t, f.Close())
}

// writeKubeconfig writes a kubeconfig for use in the machine.
func (k *kubeNode) writeKubeconfig(file string, user clientcmdapi.AuthInfo) {
	k.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["e2e"] = &clientcmdapi.Cluster{
		Server: "https://" + apiServerHost + ":" + apiServerPort, CertificateAuthorityData: k.cluster.Admin.CAData,
	}
	config.AuthInfos["e2e"] = &user
	config.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: "e2e"}
	config.CurrentContext = "e2e"
	require.NoError(k.t, clientcmd.WriteToFile(*config, file))
}

// pushServiceAccount brings a kubeconfig with a token of the service account to
// that path of the machine.
func (k *kubeNode) pushServiceAccount(namespace, name string, to cluster.BoundTo, remote string) {
	k.t.Helper()
	file, err := k.cluster.ServiceAccount(k.t.Context(), namespace, name, to)
	require.NoError(k.t, err)
	outside, err := clientcmd.LoadFromFile(file)
	require.NoError(k.t, err)
	inside := filepath.Join(k.t.TempDir(), "kubeconfig")
	k.writeKubeconfig(inside, *outside.AuthInfos[outside.Contexts[outside.CurrentContext].AuthInfo])
	require.NoError(k.t, k.Push(k.t.Context(), inside, remote))
}

// joinAgent starts the agent of the node, with the rights that deploy/ grants.
func (k *kubeNode) joinAgent() {
	k.t.Helper()
	require.NoError(k.t, k.cluster.Apply(k.t.Context(), deploy.RBAC, deploy.RBACEvictDirect))
	k.pushServiceAccount("plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: nodeName}, "/root/agent.kubeconfig")
	k.configure(acting)
	k.startAgentWith(joined)
}

const (
	// joined are the arguments of an agent with the rights that deploy/ grants.
	joined = "--config /root/agent.yaml --kubeconfig /root/agent.kubeconfig --node " + nodeName
	// acting configures one that evicts. Tests count its decisions, also of many pods.
	acting = "eviction: {dryRun: false, reportOnly: 0s, limits: {perMinute: 60, perOwnerHour: 3600}}\nstate: {decisions: 2000}\n"
	// repeating configures one whose marks are gone with what they are for.
	repeating = "eviction: {dryRun: false, reportOnly: 0s, limits: {perMinute: 60, perOwnerHour: 3600}, transition: 1s, taints: {minimum: 1s, maximum: 1s}}\nstate: {decisions: 2000}\n"
)

// decisions of the agent, newest first; none while the machine is too short of
// memory to be asked.
func (k *kubeNode) decisions() []evict.Decision {
	var said struct {
		Decisions []evict.Decision `json:"decisions"`
	}
	out, err := k.Get(k.t.Context(), agentAddress, "/api/v1/decisions")
	if err != nil {
		return nil
	}
	require.NoError(k.t, json.Unmarshal(out, &said), "%s", out)
	return said.Decisions
}

// evictedFor is whether a pod was evicted for a verdict of that plugin.
func evictedFor(plugin string) func(evict.Decision) bool {
	return func(d evict.Decision) bool {
		return d.Code == evict.CodeEvicted && slices.ContainsFunc(d.Causes, func(c evict.Cause) bool { return c.Plugin == plugin })
	}
}

// evicted waits until the agent has evicted a pod for a verdict of that plugin.
func (k *kubeNode) evicted(limit time.Duration, plugin string) (found evict.Decision) {
	k.t.Helper()
	k.until(limit, "a pod is evicted for "+plugin, func() bool {
		list := k.decisions()
		i := slices.IndexFunc(list, evictedFor(plugin))
		if i >= 0 {
			found = list[i]
		}
		return i >= 0
	})
	return found
}

// with is the same node, for a subtest.
func (k *kubeNode) with(t *testing.T) *kubeNode {
	return &kubeNode{node: k.node.with(t), cluster: k.cluster, way: k.way, since: time.Now()}
}

// stage says how long it took since the stage before.
func (k *kubeNode) stage(what string) {
	k.t.Logf("%5.1f s  %s", time.Since(k.since).Seconds(), what)
	k.since = time.Now()
}

// condition is what the API server has of the node's condition of that type.
func (k *kubeNode) condition(kind corev1.NodeConditionType) corev1.ConditionStatus {
	k.t.Helper()
	n := k.object()
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		return corev1.ConditionUnknown
	}
	return n.Status.Conditions[i].Status
}

// object is the Node, an empty one when there is none yet.
func (k *kubeNode) object() *corev1.Node {
	k.t.Helper()
	n, err := k.cluster.Client.CoreV1().Nodes().Get(k.t.Context(), nodeName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(k.t, err)
	}
	return n
}

// takesPods is the case once the kubelet said it is Ready and the control plane
// took the taint away that every new node has.
func (k *kubeNode) takesPods() bool {
	return k.condition(corev1.NodeReady) == corev1.ConditionTrue && len(k.object().Spec.Taints) == 0
}

// deploy makes a Deployment of one such pod, for as long as the test runs.
func (k *kubeNode) deploy(name string, spec corev1.PodSpec) {
	k.t.Helper()
	for i := range spec.Containers {
		spec.Containers[i].ImagePullPolicy = corev1.PullNever
	}
	labels := map[string]string{"app": name}
	_, err := k.cluster.Client.AppsV1().Deployments(metav1.NamespaceDefault).Create(k.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(k.t, err)
	k.t.Cleanup(func() { k.undeploy(name) })
}

// undeploy deletes the Deployment, if it is there, and with it its pods.
func (k *kubeNode) undeploy(name string) {
	k.t.Helper()
	ctx, cancel := deadline.Context(context.WithoutCancel(k.t.Context()), time.Minute)
	defer cancel()
	err := k.cluster.Client.AppsV1().Deployments(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		assert.NoError(k.t, err)
	}
}

// pods of the Deployment, as the API server has them.
func (k *kubeNode) pods(name string) []corev1.Pod {
	k.t.Helper()
	pods, err := k.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).List(k.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	require.NoError(k.t, err)
	return pods.Items
}

// running waits until a pod of the Deployment runs that is none of those.
func (k *kubeNode) running(name string, those ...types.UID) corev1.Pod {
	k.t.Helper()
	var found corev1.Pod
	k.until(time.Minute, "a pod of "+name+" runs", func() bool {
		pods := k.pods(name)
		i := slices.IndexFunc(pods, func(p corev1.Pod) bool {
			return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && !slices.Contains(those, p.UID)
		})
		if i >= 0 {
			found = pods[i]
		}
		return i >= 0
	})
	return found
}

// ended waits until the API server has no such pod any more and the machine no
// cgroup of it, which the kernel lets go only without processes.
func (k *kubeNode) ended(pod corev1.Pod) {
	k.t.Helper()
	k.until(time.Minute, "the pod "+pod.Name+" is gone", func() bool {
		p, err := k.cluster.Client.CoreV1().Pods(pod.Namespace).Get(k.t.Context(), pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && p.UID != pod.UID
	})
	uid := strings.ReplaceAll(string(pod.UID), "-", "_")
	k.until(time.Minute, "the cgroup of the pod "+pod.Name+" is gone", func() bool {
		return k.run("find /sys/fs/cgroup -name '*"+uid+"*'") == ""
	})
}

// withPages gives the machine the file that a presser reads, on a disk of so
// many operations per second: a page that was dropped costs what it costs there.
func (n *node) withPages(iops int) {
	n.t.Helper()
	n.run("mkfs.ext4 -q /dev/vdb && mount /dev/vdb /mnt && dd if=/dev/zero of=/mnt/pages bs=1M count=150 status=none && sync")
	_, err := n.Monitor(n.t.Context(), fmt.Sprintf("block_set_io_throttle vd1 0 0 0 %d 0 0", iops))
	require.NoError(n.t, err)
}

// fullMark is of a filesystem that is full: what makes an agent mark the Node that
// takes no minutes.
const fullMark = "plimsoll.dev/FilesystemPressure"

// fill a filesystem, /srv/full, until the Node is marked for it. The agent is to
// be told to judge that one.
func (k *kubeNode) fill() {
	k.t.Helper()
	k.run("mkdir -p /srv/full && mount -t tmpfs -o size=8M tmpfs /srv/full && ! dd if=/dev/zero of=/srv/full/file bs=1M status=none")
	k.until(time.Minute, "the Node is marked", func() bool { return k.condition(fullMark) == corev1.ConditionTrue })
	assert.Contains(k.t, k.object().Spec.Taints, corev1.Taint{Key: fullMark, Effect: corev1.TaintEffectPreferNoSchedule})
	assert.Subset(k.t, k.marked(), []string{"taint " + fullMark, "condition " + fullMark})
}

// marked are the marks of ours on the Node.
func (k *kubeNode) marked() (list []string) {
	k.t.Helper()
	n := k.object()
	for _, t := range n.Spec.Taints {
		list = append(list, "taint "+t.Key)
	}
	for _, c := range n.Status.Conditions {
		list = append(list, "condition "+string(c.Type))
	}
	for _, notes := range []map[string]string{n.Annotations, n.Labels} {
		for key := range notes {
			list = append(list, "note "+key)
		}
	}
	return slices.DeleteFunc(list, func(s string) bool { return !strings.Contains(s, " plimsoll.dev/") })
}

// files of the machine that are not the kubelet's, its runtime's or dpkg's.
func (n *node) files() []string {
	n.t.Helper()
	return strings.Fields(n.run(`find / -xdev \( -path /var/lib/kubelet -o -path /var/lib/containerd -o -path /var/lib/cni -o -path /var/lib/dpkg` +
		` -o -path /var/log -o -path '/var/lib/systemd/*' -o -path /tmp \) -prune -o -print`))
}

// without is the part of a list that others do not have.
func without(list, others []string) (part []string) {
	had := map[string]bool{}
	for _, o := range others {
		had[o] = true
	}
	for _, l := range list {
		if !had[l] {
			part = append(part, l)
		}
	}
	return part
}
