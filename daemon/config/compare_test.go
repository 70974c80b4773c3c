package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/plugins/outer"
)

func TestConfigDifferences(t *testing.T) {
	a, b := Default(), Default()
	assert.Empty(t, Differences(&a, &b))

	b.Tick = 2 * time.Second
	b.Web.ListenAddresses = []string{":0"}
	b.Workloads.Roots = []string{}
	b.Plugins.MemoryStall.Hard.Available = 0.03
	b.Plugins.MemoryStall.Enabled = false
	want := []string{"tick", "web.listenAddresses", "plugins.memoryStall.enabled", "plugins.memoryStall.hard.available"}
	assert.Equal(t, want, Differences(&a, &b), "an empty list and none are the same")
	assert.Equal(t, want, Differences(&b, &a))
}

func TestConfigRestartNeeded(t *testing.T) {
	a, b := Default(), Default()
	walkedTo := func(change func(*Agent)) []string {
		b = Default()
		change(&b)
		return RestartNeeded(&a, &b)
	}
	assert.Empty(t, walkedTo(func(*Agent) {}))
	assert.Empty(t, walkedTo(func(b *Agent) { b.Tick, b.Plugins.WarmUp, b.Log.Level, b.Eviction.DryRun = 1, 1, "x", false }))
	assert.Equal(t, []string{"paths.procfs", "paths.sysfs", "paths.cgroupfs", "paths.rootfs"}, walkedTo(func(b *Agent) { b.Paths = Paths{"a", "b", "c", "d"} }))
	assert.Equal(t, []string{"web.listenAddresses", "web.configFile", "web.tokenReview", "web.open", "web.pprof", "web.podSeries.top", "web.podSeries.maxSeries"},
		walkedTo(func(b *Agent) { b.Web = Web{nil, "x", true, true, true, PodSeries{5, 100}} }))
	assert.Empty(t, walkedTo(func(b *Agent) { b.Filesystems.Mounts, b.Filesystems.Every = []string{"/"}, 1 }))
	assert.Equal(t, []string{"plugins.fullPods", "plugins.annotations"}, walkedTo(func(b *Agent) {
		b.Plugins.FullPods, b.Plugins.Annotations, b.Plugins.Top = true, []outer.Annotations{{Plugin: "p"}}, 1
	}))
	assert.Equal(t, []string{"lease.enabled", "lease.target", "lease.interval", "lease.duration"}, walkedTo(func(b *Agent) { b.Lease = Lease{false, LeaseOfNode, 1, 1} }))
	assert.Equal(t, []string{"recording.dir"}, walkedTo(func(b *Agent) { b.Recording.Dir = "x" }))
	assert.Equal(t, []string{"kubernetes.kubeconfig"}, walkedTo(func(b *Agent) { b.Kubernetes.Kubeconfig = "x" }))
	assert.Equal(t, []string{"eviction.optOut"}, walkedTo(func(b *Agent) { b.Eviction.OptOuts = b.Eviction.OptOuts[:1] }))
	assert.Equal(t, []string{"api.socket"}, walkedTo(func(b *Agent) { b.API.Socket = "x"; b.Tick = 1 }))
}
