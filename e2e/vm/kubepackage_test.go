package vm_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// thePackage is installed beside the kubelet, joins the cluster, marks the Node,
// and is purged.
func thePackage(shared *kubeNode) func(*testing.T) {
	return func(t *testing.T) {
		if !long() {
			t.Skip("a minute or more of an emulated machine: make e2e")
		}
		k := shared.with(t)
		require.NoError(t, k.Push(t.Context(), makePackage(t), "/root/plimsoll.deb"))
		k.stage("package made")
		before := k.files()
		k.run("dpkg -i /root/plimsoll.deb")
		require.NoError(t, k.cluster.Apply(t.Context(), deploy.RBAC))
		k.pushServiceAccount("plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: nodeName}, "/etc/plimsoll/agent.kubeconfig")
		k.run(`sed -i 's|standalone: true|kubeconfig: /etc/plimsoll/agent.kubeconfig|' /etc/plimsoll/agent.yaml && cat >>/etc/plimsoll/agent.yaml <<'E'
eviction: {dryRun: false, reportOnly: 0s}
filesystems: {mounts: [/srv/full], every: 1s}
plugins: {warmUp: 0s, filesystem: {minSize: 0, for: 3s}}
E
chmod 600 /etc/plimsoll/agent.kubeconfig && plimsoll config check /etc/plimsoll/agent.yaml`)
		k.stage("package installed")
		k.run("systemctl enable --now plimsoll-agent") // returns when it says that it is ready
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the unit said:\n%s", k.run("journalctl -q --no-pager -n 40 -o cat -u plimsoll-agent"))
			}
		})
		assert.Equal(t, "enabled\nactive\n", k.run("systemctl is-enabled plimsoll-agent && systemctl is-active plimsoll-agent"))
		assert.NotEmpty(t, strings.TrimSpace(k.run("systemctl show -P StatusText plimsoll-agent")), "what it says of itself")
		k.stage("the unit is ready")
		k.until(time.Minute, "all of the agent is ready, its heartbeat too", func() bool {
			_, err := k.Get(t.Context(), agentAddress, "/-/ready")
			return err == nil
		})
		metrics := k.run("busybox wget -q -O- http://127.0.0.1:9773/metrics")
		for _, name := range []string{"plimsoll_lease_last_renewal_timestamp_seconds", "plimsoll_pressure_waiting_seconds_total", "plimsoll_disk_reads_completed_total"} {
			assert.Contains(t, metrics, "\n"+name)
		}
		l, err := k.cluster.Client.CoordinationV1().Leases("plimsoll-node-lease").Get(t.Context(), nodeName, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, nodeName, *l.Spec.HolderIdentity)
		k.fill()
		k.stage("the Node is marked")

		ctx, cancel := deadline.Context(t.Context(), 3*time.Minute) // its script has two
		defer cancel()
		said, err := k.Run(ctx, "dpkg -P plimsoll 2>&1")
		require.NoError(t, err, said)
		k.stage("purged")
		assert.NotContains(t, said, "may stay")
		assert.Empty(t, k.marked())
		k.run("umount /srv/full && rm -r /srv/full /etc/plimsoll") // the kubeconfig is not the package's
		assert.Empty(t, without(k.files(), before))
		assert.Empty(t, without(before, k.files()))
		assert.Empty(t, k.run("getent passwd plimsoll; getent group plimsoll; systemctl list-units --all --no-legend 'plimsoll*'"))
		k.stage("nothing is left")
	}
}

// makePackage has make build the packages, and gives Debian's.
func makePackage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	said, err := exec.CommandContext(t.Context(), "make", "-C", "../..", "package", "PACKAGES="+dir, "VERSION="+imageVersion, "PACKAGE_VERSION=1.0.0").CombinedOutput()
	require.NoError(t, err, "%s", said)
	return filepath.Join(dir, "plimsoll_1.0.0_amd64.deb")
}
