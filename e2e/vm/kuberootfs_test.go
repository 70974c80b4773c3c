package vm_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// aRootfsIsOverused: what pods use is what the real containerd reports of them. Its
// filesystem is a disk of 2 GiB, and the thresholds are far from the kubelet's, which
// evicts nothing here.
func aRootfsIsOverused(shared *kubeNode) func(*testing.T) {
	return func(t *testing.T) {
		k := shared.with(t)
		k.deploy("reader", idle())
		k.deploy("writer", idle())
		reader, writer := k.running("reader"), k.running("writer")
		k.configure(repeating + `containerRuntime: {every: 5s, timeout: 5s}
plugins: {warmUp: 0s, rootfsOveruse: {enabled: true, soft: {available: 0.75}, hard: {available: 0.7}, minUsed: 100Mi, for: 3s, clearFor: 1s}}
`)
		defer k.configure(acting)
		k.until(time.Minute, "the agent has containerd's figures of both pods", func() bool {
			return !k.rootfsOf(reader).IsZero() && !k.rootfsOf(writer).IsZero()
		})
		k.stage("containerd tells what pods use")
		k.until(time.Minute, "the agent has settled", func() bool { return k.agentAge() > evict.DefaultConfig().Cooldown })

		k.since = time.Now()
		k.writeRootfs(reader, "50")
		k.writeRootfs(writer, k.toLeave(60))
		onDisk := k.layerOf(writer)
		k.until(2*time.Minute, "containerd has measured it", func() bool {
			used, _ := k.rootfsOf(writer).Get()
			return used >= onDisk
		})
		used, _ := k.rootfsOf(writer).Get()
		assert.InDelta(t, onDisk, used, 1<<20, "containerd counts what du counts")
		k.stage("containerd has measured it")
		d := k.evicted(2*time.Minute, "rootfs-overuse")
		k.stage("the writer is evicted")
		going, _ := d.FirstEvicted()
		assert.Equal(t, string(writer.UID), going.Pod.UID)
		assert.Equal(t, corev1.ConditionFalse, k.condition(corev1.NodeDiskPressure), "the kubelet came first")
		t.Logf("plimsoll explain eviction %s:\n%s", writer.Name, k.run("/root/plimsoll explain eviction "+writer.Name))
		k.ended(writer)
		k.until(2*time.Minute, "its space is available again", func() bool { return k.availablePercent() > 75 })
		k.stage("its space is available again")
		k.until(2*time.Minute, "the Node is not marked", func() bool { return k.condition(names.Prefix+"RootfsOveruse") != corev1.ConditionTrue })
		assert.Equal(t, reader.UID, k.running("reader").UID, "the other pod is the same")
		assert.Equal(t, 1, countOf(k.decisions(), evictedFor("rootfs-overuse")))
	}
}

// rootfsOf is what the agent has of the root filesystem of a pod, in bytes.
func (k *kubeNode) rootfsOf(pod corev1.Pod) (used snapshot.Opt[uint64]) {
	k.t.Helper()
	var s snapshot.Snapshot
	require.NoError(k.t, json.Unmarshal(k.snapshot(), &s))
	if s.Rootfs == nil {
		return used
	}
	i := slices.IndexFunc(s.Rootfs.Pods, func(p snapshot.PodRootfs) bool { return p.PodUID == string(pod.UID) })
	if i < 0 {
		return used
	}
	return s.Rootfs.Pods[i].UsedBytes
}

// rootOf is the root directory of a pod's container, as the machine sees it.
func rootOf(pod corev1.Pod) string {
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "//")
	return "/run/containerd/io.containerd.runtime.v2.task/k8s.io/" + id + "/rootfs"
}

// writeRootfs writes so many MiB into the root filesystem of a pod, as its container
// would.
func (k *kubeNode) writeRootfs(pod corev1.Pod, mib string) {
	k.t.Helper()
	k.run("dd if=/dev/zero of=" + rootOf(pod) + "/data bs=1M status=none count=" + mib + " && sync -f " + runtimeDir)
}

// layerOf is what the writable layer of a pod's container uses on disk.
func (k *kubeNode) layerOf(pod corev1.Pod) uint64 {
	k.t.Helper()
	layer := strings.TrimSpace(k.run("findmnt -n -o OPTIONS " + rootOf(pod) + " | tr , '\\n' | sed -n s/^upperdir=//p"))
	require.NotEmpty(k.t, layer)
	n, err := strconv.ParseUint(strings.Fields(k.run("du -s --block-size=1 " + layer))[0], 10, 64)
	require.NoError(k.t, err)
	return n
}

// toLeave is the shell's word for how many MiB must be written until only so many
// percent are available of the runtime's filesystem.
func (k *kubeNode) toLeave(percent int) string {
	return fmt.Sprintf("$(df -B1 --output=size,avail %s | awk 'NR == 2 { print int(($2 - $1 * %d / 100) / 1048576) }')", runtimeDir, percent)
}

func (k *kubeNode) availablePercent() float64 {
	k.t.Helper()
	n, err := strconv.ParseFloat(strings.TrimSpace(k.run("df -B1 --output=size,avail "+runtimeDir+" | awk 'NR == 2 { print 100 * $2 / $1 }'")), 64)
	require.NoError(k.t, err)
	return n
}

// recordRootfs records a node with a real kubelet and containerd. Its agent knows the
// pods, and only observes.
func recordRootfs(t *testing.T, r recorder) {
	var c *cluster.Cluster
	machine := "QEMU (emulated), Linux 6.1, cgroup v2, kubelet 1.37 and containerd, whose filesystem has 2 GiB; 2 CPUs, 2 GiB"
	r.on(t, "rootfs", machine, scenesOfRootfs(func() *cluster.Cluster { return c }), func(t *testing.T) *node {
		k := startKubelet(t, kubeOptions{})
		c = k.cluster
		require.NoError(t, c.Apply(t.Context(), deploy.RBAC))
		k.pushServiceAccount("plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: nodeName}, "/root/agent.kubeconfig")
		return k.node
	})
}

// scenesOfRootfs are those of a machine with a kubelet. Its thresholds are the
// defaults: it evicts at less than 15 % available.
func scenesOfRootfs(c func() *cluster.Cluster) []scene {
	const (
		observes = "eviction: {dryRun: true}\ncontainerRuntime: {every: 10s, timeout: 10s}\nplugins: {rootfsOveruse: {enabled: true}}\n"
		left     = 18 // percent, between the kubelet's threshold and the rule's
	)
	of := func(n *node) *kubeNode { return &kubeNode{node: n, cluster: c(), since: time.Now()} }
	pods := func(n *node, names ...string) (list []corev1.Pod) {
		k := of(n)
		for _, name := range names {
			k.deploy(name, idle())
		}
		for _, name := range names {
			list = append(list, k.running(name))
		}
		return list
	}
	return []scene{
		{
			name: "rootfs-full-of-images", class: "filesystem", run: 150 * time.Second, config: observes, agent: joined,
			did: "files that are no pod's, as images are, take the filesystem of containerd up to 18 % available; two pods write 20 and 60 MiB to their root filesystems",
			why: "the kubelet keeps images until 15 % are available: little is available, and no pod uses much",
			begin: func(n *node) {
				list := pods(n, "shop", "mail")
				of(n).writeRootfs(list[0], "20")
				of(n).writeRootfs(list[1], "60")
				n.run("fallocate -l " + of(n).toLeave(left) + "M " + runtimeDir + "/images")
			},
			end: func(n *node) { n.run("rm " + runtimeDir + "/images") },
		},
		{
			name: "rootfs-overuse", class: "filesystem", run: 150 * time.Second, config: observes, agent: joined,
			want: []judgement.Want{{Resource: plugins.Filesystem, Scope: "rootfs space", Level: plugins.Hard, Culprit: "writer"}},
			did:  "a pod writes to its root filesystem until 18 % of containerd's filesystem are available; another one writes 60 MiB",
			why:  "one pod without a request of ephemeral-storage uses most of the filesystem, and the kubelet does nothing above 15 %",
			begin: func(n *node) {
				list := pods(n, "post", "writer")
				of(n).writeRootfs(list[0], "60")
				of(n).writeRootfs(list[1], of(n).toLeave(left))
			},
			end: func(n *node) { of(n).undeploy("writer") },
		},
	}
}
