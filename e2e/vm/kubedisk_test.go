package vm_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// onDisk has disks judged within seconds.
const onDisk = "plugins: {warmUp: 0s, diskContention: {for: 5s, clearFor: 5s}}\n"

// copiersAreThrottled: a pod reads and writes a disk of 200 requests a second with 24 of
// them in flight, beside a service that reads four times a second. It is throttled, and the
// service waits no longer than before. The rules of the agent evict no pod for a disk; beside
// them an outer plugin would, and has nothing to evict for, unlike without throttles.
func copiersAreThrottled(shared *kubeNode) func(*testing.T) {
	return func(t *testing.T) {
		if os.Getenv("PLIMSOLL_LONG") == "" {
			t.Skip("it presses a disk of an emulated machine for a minute: make e2e")
		}
		k := shared.with(t)
		k.run("mkfs.ext4 -q -F -O ^has_journal /dev/vdb && mkdir -p /srv/work && mount /dev/vdb /srv/work && dd if=/dev/zero of=/srv/work/data bs=1M count=256 status=none && sync")
		t.Cleanup(func() { k.run("umount /srv/work") })
		k.throttle(200, "vd1")
		t.Cleanup(func() { k.throttle(0, "vd1") })
		k.run("systemctl stop plimsoll")
		k.learned("/root/state", "vdb")
		k.configure(repeating + onDisk + "throttle: {dryRun: false}\n")
		k.startAgentWith(joined + " --state.dir /root/state")
		k.deploy("shop", worker("", "96Mi", "-file", "/srv/work/shop", "-read", "1"))
		shop := k.running("shop")
		k.slowDisk()
		n := repeated(t, "PLIMSOLL_COPIERS")
		evictions := func() int { return countOf(k.decisions(), evictedFor("slow-disk")) }
		relieved := 0
		for range n {
			if k.throttlesCopier(shop) {
				relieved++
			}
		}
		t.Logf("%d of %d times the service waited no longer than one and a half times as long as usual %s after the throttle", relieved, n, relievedWithin)
		if n >= 10 { // one alone is judged by what a busy host adds
			assert.GreaterOrEqual(t, relieved*10, n*9)
		}
		assert.Zero(t, evictions(), "with the throttle")
		k.configure(repeating + onDisk + "throttle: {enabled: false}\n")
		for i := range n {
			k.evictsCopier(i + 1)
		}
		t.Logf("%d pods with the throttle, none evicted; without it %d evictions of %d pods", n, evictions(), n)
		k.run("systemctl stop slowdisk")
		k.configure(repeating + onDisk + "throttle: {dryRun: false}\n")
		k.limitKept()
		k.killedWhileItThrottles()
		k.undeploy("shop")
		k.ended(shop)
	}
}

// slowDisk starts the outer plugin that has pods evicted for a disk.
func (k *kubeNode) slowDisk() {
	k.t.Helper()
	program := filepath.Join(k.t.TempDir(), "slowdisk")
	build(k.t, "./e2e/vm/slowdisk", program)
	require.NoError(k.t, k.Push(k.t.Context(), program, "/root/slowdisk"))
	k.run("chmod +x /root/slowdisk && mkdir -p /root/plugins && systemd-run -q --unit=slowdisk /root/slowdisk -disk vdb -answers 4 -plugins.dir /root/plugins")
	k.until(time.Minute, "the agent asks it", func() bool { return strings.Contains(k.run("/root/plimsoll plugins"), "slow-disk") })
}

// evictsCopier waits until the n-th pod that presses the disk was evicted.
func (k *kubeNode) evictsCopier(n int) {
	k.t.Helper()
	k.deploy("copier", copier())
	pressing := k.running("copier")
	k.until(2*time.Minute, "a pod is evicted", func() bool { return countOf(k.decisions(), evictedFor("slow-disk")) >= n })
	k.undeploy("copier")
	k.ended(pressing)
	k.until(2*time.Minute, "the Node is not marked", func() bool { return k.condition(names.Prefix+"SlowDisk") != corev1.ConditionTrue })
}

// limitKept has the API server stand still while a pod is throttled, and then systemd reloads
// its units, the container restarts, and the clock is set by an hour and back: the limit stays,
// by what the pod used before, and the agent removes it when it ends.
func (k *kubeNode) limitKept() {
	k.t.Helper()
	pressing := k.throttledCopier()
	cgroup := k.cgroupOf(pressing)
	limit := func() string { return strings.TrimSpace(k.run("cat " + cgroup + "/io.max")) }
	base := func() (base float64, kept bool) { // what it used before, by its limit
		list := k.throttled()
		if len(list) != 1 || list[0].Foreign {
			return 0, false
		}
		return list[0].May.Read * 100 / float64(list[0].Percent), true
	}
	before, _ := base()
	require.NotZero(k.t, before)
	api := k.cluster.APIServers[0]
	require.NoError(k.t, api.Pause())
	k.t.Cleanup(func() { _ = api.Resume() })
	for _, e := range []struct{ what, command string }{
		{"systemd has reloaded its units", "systemctl daemon-reload"},
		{"the container was ended", "pkill -KILL -f '[w]ork direct'"},
		{"the clock was set forward", "date -s '+1 hour'"},
		{"the clock was set back", "date -s '-1 hour'"},
	} {
		k.run(e.command)
		var now float64
		k.throughout(10*time.Second, func() {
			var kept bool
			now, kept = base()
			require.True(k.t, kept, e.what)
			require.InEpsilon(k.t, before, now, 0.1, e.what)
			require.NotEmpty(k.t, limit(), e.what)
		})
		k.t.Logf("%s, 10 s later: %s, of %.1f MB/s", e.what, limit(), now/1e6)
	}
	k.run("systemctl stop plimsoll")
	require.Empty(k.t, limit(), "removed at the end, without the API server")
	require.NoError(k.t, api.Resume())
	k.undeploy("copier")
	k.ended(pressing)
	k.startAgentWith(joined + " --state.dir /root/state")
}

// killedWhileItThrottles kills the agent while a pod has a limit of its. The next one
// restores what was there before, at once where it throttles nothing.
func (k *kubeNode) killedWhileItThrottles() {
	k.t.Helper()
	pressing := k.throttledCopier()
	limits := func() string {
		return k.run("find /sys/fs/cgroup/kubepods.slice -name io.max -path '*" + strings.ReplaceAll(string(pressing.UID), "-", "_") + "*' -exec cat {} +")
	}
	k.until(time.Minute, "there is a limit", func() bool { return limits() != "" })
	k.run("systemctl kill -s KILL plimsoll; systemctl stop plimsoll 2>/dev/null; systemctl reset-failed plimsoll 2>/dev/null; true")
	assert.NotEmpty(k.t, limits(), "nothing removes it while there is no agent")
	k.configure(repeating + "throttle: {enabled: false}\n")
	started := time.Now()
	k.startAgentWith(joined + " --state.dir /root/state")
	k.until(15*time.Second, "the next agent has removed it", func() bool { return limits() == "" })
	k.t.Logf("the limit was removed %.1f s after the next agent was started", time.Since(started).Seconds())
	k.undeploy("copier")
	k.ended(pressing)
}

// throttlesCopier waits until a pod that presses the disk was throttled for the sake of
// that service, and has ended. It tells whether the service waited hardly longer than usual.
func (k *kubeNode) throttlesCopier(service corev1.Pod) bool {
	k.t.Helper()
	var usual []time.Duration
	since := k.clock()
	k.until(time.Minute, "the service has read a while", func() bool {
		usual = k.awaits(service, since)
		return len(usual) >= 5
	})
	pressing := k.throttledCopier()
	throttled := k.eventOf(pressing.UID, "Throttled")
	k.until(2*time.Minute, "it was throttled for a while", func() bool { return k.clock().Sub(throttled) > relievedWithin+10*time.Second })
	pressed, relieved := k.awaits(service, throttled.Add(-4*time.Second)), k.awaits(service, throttled.Add(relievedWithin))
	k.t.Logf("usual %s; %s after the throttle %s; from 4 s before the throttle %s", mean(usual), relievedWithin, mean(relieved), pressed)
	assert.Greater(k.t, pressed[0], 3*mean(usual), "the service waited")
	assert.Less(k.t, mean(relieved), pressed[0]/4, "mean from %s after the throttle", relievedWithin)
	k.undeploy("copier")
	k.ended(pressing)
	k.until(time.Minute, "it is over", func() bool { return k.onDisk("vdb").Level == plugins.None })
	return mean(relieved) <= mean(usual)*3/2
}

// relievedWithin is the time in which a throttle is to have its effect.
const relievedWithin = 15 * time.Second

// copier is a pod that presses the disk.
func copier() corev1.PodSpec {
	spec := idle()
	spec.Containers[0] = corev1.Container{
		Name: "hog", Image: imageOf("hog"), Args: []string{"-work", "direct", "-dir", "/srv/work", "-threads", "24"},
		VolumeMounts: []corev1.VolumeMount{{Name: "work", MountPath: "/srv/work"}},
	}
	spec.Volumes = worker("", "1Mi").Volumes
	return spec
}

// throttledCopier runs, and is throttled.
func (k *kubeNode) throttledCopier() corev1.Pod {
	k.t.Helper()
	k.deploy("copier", copier())
	pod := k.running("copier")
	k.said(pod.UID, "Throttled", time.Minute)
	return pod
}

func mean(list []time.Duration) (sum time.Duration) {
	for _, d := range list {
		sum += d
	}
	return sum / time.Duration(max(1, len(list)))
}

// awaits is how long a request of that pod took since then, in the mean of each two seconds,
// as its program says.
func (k *kubeNode) awaits(pod corev1.Pod, since time.Time) (list []time.Duration) {
	k.t.Helper()
	text := k.run("tail -n 700 /var/log/pods/" + pod.Namespace + "_" + pod.Name + "_" + string(pod.UID) + "/*/*.log")
	var first, last said
	for line := range strings.Lines(text) {
		stamp, rest, _ := strings.Cut(line, " stdout F ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil || at.Before(since) {
			continue
		}
		last = said{at: at}
		require.NoError(k.t, json.Unmarshal([]byte(rest), &last.done))
		if first.at.IsZero() {
			first = last
		}
		if n := (last.done.Read - first.done.Read) / (256 << 10); n > 0 && last.at.Sub(first.at) >= 2*time.Second {
			list, first = append(list, ((last.done.Waited-first.done.Waited)/time.Duration(n)).Round(100*time.Microsecond)), last
		}
	}
	return list
}

// said is what the program steady has done at a time.
type said struct {
	at   time.Time
	done struct {
		Read   uint64
		Waited time.Duration
	}
}
