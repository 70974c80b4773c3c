package chart_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/chart"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

// In make e2e also every other form of the release, of which make test shows what is
// rendered: TestPrivilege, TestPods, TestPlainManifest.
func TestChartInstallUpgradeUninstall(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: pods get roots of their own")
	}
	w := newWorld(t)
	w.hide()
	before := w.all()
	w.install()
	w.reconfigure()
	if live.IsLong() {
		w.throttles()
		w.monitored()
		w.observe()
	}
	w.mark()
	w.uninstall(before)
	assert.Empty(t, w.marks())
	if live.IsLong() {
		w.installPlain()
	}
}

// install by the default values: what is there is valid, and works.
func (w *world) install() {
	w.t.Helper()
	w.Run("install", "plimsoll", chart.Dir, "--create-namespace")
	installed := chart.Objects(w.t, w.Run("get", "manifest", "plimsoll"))
	there := w.all()
	for _, o := range installed {
		require.Contains(w.t, there, chart.NameOf(o))
		assert.NoError(w.t, w.refused(o, there), chart.NameOf(o))
	}
	w.agent, w.controller = w.runs("agent", seeing), w.runs("controller", nothing)
	w.becomes(w.agent, "plimsoll_eviction_dry_run", "1")
	w.becomes(w.controller, "plimsoll_leader", "1")
	w.secured("baseline", "non-default capabilities (container")
	w.secured("privileged", "")
	found := w.doctor(seeing)
	for _, seen := range []string{"pressure", "memory", "disks", "nics", "network", "workloads"} {
		assert.Regexp(w.t, `PASS +probe `+seen+` `, found)
	}
	assert.Regexp(w.t, `PSI triggers +\d can be armed over \w+: host([,;]|\s)`, found)
	assert.Regexp(w.t, `PASS +rights `, found)
	assert.Regexp(w.t, `PASS +heartbeat +plimsoll-node-lease/n1 is held by "n1"`, found)
}

// secured namespaces refuse pods that their level does not allow, for the reason
// given; none: they take them.
func (w *world) secured(level, refuses string) {
	w.t.Helper()
	label := fmt.Sprintf(`{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": %q}}}`, level)
	_, err := w.c.Client.CoreV1().Namespaces().Patch(w.t.Context(), chart.Namespace, types.MergePatchType, []byte(label), metav1.PatchOptions{})
	require.NoError(w.t, err)
	pods := w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(chart.Namespace)
	eventually(w.t, "the API server knows the level", func() error {
		_, err := pods.Create(w.t.Context(), w.hook("test")[0], metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if refuses == "" {
			return err
		}
		if err == nil || !strings.Contains(err.Error(), refuses) {
			return fmt.Errorf("want it refused for %q, got %v", refuses, err) //nolint:errorlint // no error is one here
		}
		return nil
	})
}

// reconfigure and go back: no pod is made anew, and those there are follow.
func (w *world) reconfigure() {
	w.t.Helper()
	first, err := w.beaten()
	require.NoError(w.t, err)
	generation := w.generation()
	w.Run("upgrade", "plimsoll", chart.Dir, "--reset-then-reuse-values", "--set", "agent.config.eviction.dryRun=false,agent.config.log.level=debug,controller.config.vgdp.enabled=true")
	w.agent.follow()
	w.controller.follow()
	w.becomes(w.agent, "plimsoll_eviction_dry_run", "0")
	w.says(w.controller, "changed=[vgdp.enabled]")
	w.Run("rollback", "plimsoll", "1")
	w.agent.follow()
	w.becomes(w.agent, "plimsoll_eviction_dry_run", "1")
	assert.Equal(w.t, generation, w.generation())
	w.hadPolicy("2")
	eventually(w.t, "the heartbeat goes on", func() error {
		now, err := w.beaten()
		if err == nil && !now.After(first) {
			err = fmt.Errorf("it was last at %s", now)
		}
		return err
	})
}

// hadPolicy tells that a revision, which holds loads, had the policy that releases hidden
// ones, where the API server serves its kind. Elsewhere: TestInstallByWhatIsServed.
func (w *world) hadPolicy(revision string) {
	w.t.Helper()
	served, err := w.c.Serves(deploy.GateMutating)
	require.NoError(w.t, err)
	if !served {
		return
	}
	made := chart.Objects(w.t, w.Run("get", "manifest", "plimsoll", "--revision", revision))
	assert.Equal(w.t, "admissionregistration.k8s.io/v1", named(w.t, made, releasing).GetAPIVersion())
}

// throttles data movers, for which the agent's pod is made anew with privileges.
func (w *world) throttles() {
	w.t.Helper()
	w.agent.end()
	w.Run("upgrade", "plimsoll", chart.Dir, "--reset-then-reuse-values", "--set", "agent.config.vgdp.dryRun=false")
	w.agent = w.runs("agent", acting)
	w.becomes(w.agent, "plimsoll_vgdp_dry_run", "0")
	w.secured("baseline", "privileged (container")
	w.secured("privileged", "")
	w.agent.end()
	w.Run("rollback", "plimsoll", "1")
	w.agent = w.runs("agent", seeing)
	w.becomes(w.agent, "plimsoll_vgdp_dry_run", "1")
}

// observe without any privilege: what is lost is named, and no more is.
func (w *world) observe() {
	w.t.Helper()
	w.agent.end()
	w.Run("upgrade", "plimsoll", chart.Dir, "--reset-then-reuse-values", "--set", "profile=observe,agent.config.eviction.dryRun=false")
	w.agent = w.runs("agent", nothing)
	w.becomes(w.agent, "plimsoll_eviction_dry_run", "1")
	w.secured("baseline", "hostPath volumes")
	w.secured("privileged", "")
	found := w.doctor(nothing)
	assert.Regexp(w.t, `WARN +user +uid 65532`, found)
	assert.Regexp(w.t, `WARN +probe filesystems .* CAP_SYS_PTRACE`, found)
	assert.Regexp(w.t, `WARN +PSI triggers +none can be armed`, found)
	for _, seen := range []string{"pressure", "memory", "disks", "nics", "network", "workloads"} {
		assert.Regexp(w.t, `PASS +probe `+seen+` `, found)
	}
}

// installPlain is the same without helm.
func (w *world) installPlain() {
	w.t.Helper()
	plain, err := os.ReadFile(filepath.Join(chart.Dir, "plimsoll.yaml"))
	require.NoError(w.t, err)
	require.NoError(w.t, w.c.Apply(w.t.Context(), plain))
	w.runs("agent", seeing)
}

// uninstall, and nothing is left.
func (w *world) uninstall(before map[string]schema.GroupVersionResource) {
	w.t.Helper()
	after := w.hook("post-delete")
	w.Run("uninstall", "plimsoll", "--no-hooks", "--cascade", "foreground")
	_ = w.agent.cmd.Process.Kill()
	w.controller.end()
	w.make(after)
	k := contain(w.t, w.c, w.pod("release", nothing), w.host)
	k.wait()
	assert.Zero(w.t, k.cmd.ProcessState.ExitCode(), k.out.String())
	require.NoError(w.t, w.c.Client.CoreV1().Namespaces().Delete(w.t.Context(), chart.Namespace, metav1.DeleteOptions{}))
	all := w.all()
	for _, o := range after { // as helm does when the hooks have succeeded
		if o.GetNamespace() == "" {
			require.NoError(w.t, w.client.Resource(all[chart.NameOf(o)]).Delete(w.t.Context(), o.GetName(), metav1.DeleteOptions{}))
		}
	}
	eventually(w.t, "all is as before", func() error {
		if left := chart.More(w.all(), before); len(left) > 0 {
			return fmt.Errorf("left: %q", left)
		}
		return nil
	})
	assert.Empty(w.t, chart.More(before, w.all()))
}
