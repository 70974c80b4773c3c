package config

import (
	"cmp"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// Bounds that keep a valid typo from stopping the agent, filling its memory or
// setting a threshold that is always met.
const (
	minInterval     = 500 * time.Millisecond
	maxInterval     = 5 * time.Minute
	leaseIntervals  = 2 // one renewal may be lost
	minTick         = 100 * time.Millisecond
	maxTick         = time.Minute
	minRound        = time.Second
	maxDuration     = 24 * time.Hour
	maxHistoryTicks = 7200
	watchdogTicks   = 10
	minSegment      = 64 << 10
	minSegmentAge   = time.Second
	maxRecordingAge = 10 * 365 * 24 * time.Hour
	maxAvailable    = 0.9
	minDecisions    = 256 << 10
	maxDecisions    = 10_000
	minTrigger      = 500 * time.Millisecond // minimum of kernels before 6.4
	maxTrigger      = 10 * time.Second       // maximum of all kernels
	maxEvictionHard = 1 << 50
	maxSocketPath   = 107 // sun_path of unix(7) without the final zero
	maxPort         = 65535
	maxReliefWait   = time.Minute
	maxMoverLoads   = 1000          // more than any node runs
	maxTop          = 10_000        // more than a node has pods
	minSeries       = 100           // enough for a few workloads
	maxSeries       = 100_000       // some 10 MB per scrape
	maxPriority     = 2_000_000_000 // system-cluster-critical, the lowest of the critical classes
)

// Validate lists every value that must not be used, in the order of the keys.
func (a Agent) Validate() []Problem {
	var p problems
	a.validatePeriods(&p)
	a.validateHistory(&p)
	a.validatePaths(&p)
	for i, address := range a.Web.ListenAddresses {
		why := addressProblem(address)
		p.must(why == "", why, fmt.Sprintf("web.listenAddresses[%d]", i))
	}
	intBetween(&p, "web.podSeries.top", a.Web.PodSeries.Top, 0, maxTop)
	intBetween(&p, "web.podSeries.maxSeries", a.Web.PodSeries.MaxSeries, minSeries, maxSeries)
	p.must(a.Eviction.Protect.Priority <= maxPriority,
		fmt.Sprintf("%d would allow evicting pods that Kubernetes calls critical (%d and above)", a.Eviction.Protect.Priority, maxPriority),
		"eviction.protect.priority")
	for i, optOut := range a.Eviction.OptOuts {
		if err := pods.ValidateOptOut(optOut); err != nil {
			p.must(false, err.Error(), fmt.Sprintf("eviction.optOut[%d]", i))
		}
	}
	intBetween(&p, "state.decisions", a.State.Decisions, 1, maxDecisions)
	p.must(a.State.DecisionsSize >= minDecisions, fmt.Sprintf("%s is less than 256Ki: too small for a few decisions of a full node", formatBytes(a.State.DecisionsSize)),
		"state.decisionsSize")
	intBetween(&p, "vgdp.concurrency", a.VGDP.Concurrency, 1, maxMoverLoads)
	a.validateLease(&p)
	oneOf(&p, "log.level", a.Log.Level, "debug", "info", "warn", "error")
	oneOf(&p, "log.format", a.Log.Format, "text", "json")
	a.validateRecording(&p)
	validateMemoryStall(&p, "plugins.memoryStall", a.Plugins.MemoryStall)
	validateDiskContention(&p, "plugins.diskContention", a.Plugins.DiskContention)
	validateCeilings(&p, "plugins.diskContention.ceilings", a.Plugins.DiskContention.Ceilings)
	a.validateNetwork(&p)
	a.validateOuter(&p)
	validateFilesystem(&p, "plugins.filesystem", a.Plugins.Filesystem, a.Filesystems)
	validateOOMStorm(&p, "plugins.oomStorm", a.Plugins.OOMStorm)
	validateCPUContention(&p, "plugins.cpuContention", a.Plugins.CPUContention)
	validateCPUSuppression(&p, "plugins.cpuSuppression", a.Plugins.CPUSuppression)
	validateReclaimedOvercommit(&p, "plugins.reclaimedOvercommit", a.Plugins.ReclaimedOvercommit)
	validateRSSOveruse(&p, "plugins.rssOveruse", a.Plugins.RSSOveruse)
	return p
}

func (a Agent) validatePeriods(p *problems) {
	durationBetween(p, "tick", a.Tick, minTick, maxTick)
	durationBetween(p, "window", a.Window, 0, maxDuration)
	durationBetween(p, "history", a.History, 0, maxDuration)
	durationBetween(p, "watchdog", a.Watchdog, 0, maxDuration)
	durationBetween(p, "triggers.window", a.Triggers.Window, minTrigger, maxTrigger)
	durationBetween(p, "triggers.stall", a.Triggers.Stall, time.Millisecond, a.Triggers.Window)
	durationBetween(p, "eviction.round", a.Eviction.Round, minRound, maxDuration)
	durationBetween(p, "eviction.cooldown", a.Eviction.Cooldown, 0, maxDuration)
	durationBetween(p, "eviction.transition", a.Eviction.Transition, 0, maxDuration)
	durationBetween(p, "eviction.reliefWait", a.Eviction.ReliefWait, 0, maxReliefWait)
	durationBetween(p, "eviction.urgentWait", a.Eviction.UrgentWait, 0, maxReliefWait)
	durationBetween(p, "eviction.maxGrace", a.Eviction.MaxTerminationGrace, time.Second, maxDuration)
	a.validateEviction(p)
	durationBetween(p, "filesystems.every", a.Filesystems.Every, time.Second, maxDuration)
	durationBetween(p, "filesystems.timeout", a.Filesystems.Timeout, 100*time.Millisecond, time.Minute)
	durationBetween(p, "plugins.warmUp", a.Plugins.WarmUp, 0, maxDuration)
	atLeast(p, period{"window", a.Window}, period{"tick", a.Tick}, 2)
	atLeast(p, period{"watchdog", a.Watchdog}, period{"tick", a.Tick}, watchdogTicks)
	atLeast(p, period{"eviction.round", a.Eviction.Round}, period{"tick", a.Tick}, 1)
	for _, rule := range a.ruleWindows() {
		durationBetween(p, rule.key, rule.value, 0, maxDuration)
		atLeast(p, rule, period{"tick", a.Tick}, 1)
	}
}

func (a Agent) validateRecording(p *problems) {
	r := a.Recording
	p.must(r.SegmentSize >= minSegment, fmt.Sprintf("%s is less than 64Ki: too small for more than a few samples", formatBytes(r.SegmentSize)), "recording.segmentSize")
	p.must(r.MaxSize/2 >= r.SegmentSize, fmt.Sprintf("recording.maxSize (%s) must be at least 2 × recording.segmentSize (%s): a segment is deleted as a whole",
		formatBytes(r.MaxSize), formatBytes(r.SegmentSize)), "recording.maxSize", "recording.segmentSize")
	durationBetween(p, "recording.segmentAge", r.SegmentAge, minSegmentAge, maxDuration)
	durationBetween(p, "recording.maxAge", r.MaxAge, minSegmentAge, maxRecordingAge)
	atLeast(p, period{"recording.maxAge", r.MaxAge}, period{"recording.segmentAge", r.SegmentAge}, 1)
	p.must(r.MinAvailable >= 0 && r.MinAvailable <= maxAvailable, fmt.Sprintf("%g is not between 0 and %g", r.MinAvailable, maxAvailable), "recording.minAvailable")
}

func (a Agent) validateLease(p *problems) {
	oneOf(p, "lease.target", a.Lease.Target, LeaseOfAgent, LeaseOfNode)
	durationBetween(p, "lease.interval", a.Lease.Interval, minInterval, maxInterval)
	durationBetween(p, "lease.duration", a.Lease.Duration, time.Second, maxDuration)
	atLeast(p, period{"lease.duration", a.Lease.Duration}, period{"lease.interval", a.Lease.Interval}, leaseIntervals)
}

// period is a duration and its key.
type period struct {
	key   string
	value time.Duration
}

// ruleWindows lists how far each rule looks back. cleared counts too: that a
// rule was not met must be visible for so long.
func (a Agent) ruleWindows() []period {
	list := []period{
		{"plugins.memoryStall.soft.window", a.Plugins.MemoryStall.Soft.Window},
		{"plugins.memoryStall.hard.window", a.Plugins.MemoryStall.Hard.Window},
		{"plugins.memoryStall.clearFor", a.Plugins.MemoryStall.ClearFor},
		{"plugins.diskContention.clearFor", a.Plugins.DiskContention.ClearFor},
	}
	if n := a.Plugins.NetworkContention; n.Enabled {
		list = append(list, period{"plugins.networkContention.window", n.Window}, period{"plugins.networkContention.clearFor", n.ClearFor})
	}
	if f := a.Plugins.Filesystem; f.Enabled {
		list = append(list, period{"plugins.filesystem.clearFor", f.ClearFor})
	}
	if o := a.Plugins.OOMStorm; o.Enabled {
		list = append(list, period{"plugins.oomStorm.window", o.Window}, period{"plugins.oomStorm.clearFor", o.ClearFor})
	}
	if c := a.Plugins.CPUContention; c.Enabled {
		list = append(list, period{"plugins.cpuContention.clearFor", c.ClearFor})
	}
	if c := a.Plugins.CPUSuppression; c.Enabled {
		list = append(list, period{"plugins.cpuSuppression.clearFor", c.ClearFor})
	}
	if r := a.Plugins.ReclaimedOvercommit; r.Enabled {
		list = append(list, period{"plugins.reclaimedOvercommit.clearFor", r.ClearFor})
	}
	if r := a.Plugins.RSSOveruse; r.Enabled {
		list = append(list, period{"plugins.rssOveruse.clearFor", r.ClearFor})
	}
	return list
}

// validateHistory checks that samples are kept long enough for the ratio over a
// rule's longest window: its oldest value needs the samples before it.
func (a Agent) validateHistory(p *problems) {
	longest := slices.MaxFunc(a.ruleWindows(), func(x, y period) int { return cmp.Compare(x.value, y.value) })
	p.must(a.History >= longest.value+a.Window,
		fmt.Sprintf("history (%s) must reach back over %s (%s) and window (%s) together", formatDuration(a.History),
			longest.key, formatDuration(longest.value), formatDuration(a.Window)),
		"history", longest.key, "window")
	p.must(a.Tick < minTick || a.History/a.Tick <= maxHistoryTicks,
		fmt.Sprintf("history (%s) must not hold more than %d ticks (%s)", formatDuration(a.History),
			maxHistoryTicks, formatDuration(a.Tick)),
		"history", "tick")
}

func (a Agent) validatePaths(p *problems) {
	p.must(isCleanPath(a.Paths.Procfs), wantCleanPath(a.Paths.Procfs), "paths.procfs")
	p.must(isCleanPath(a.Paths.Sysfs), wantCleanPath(a.Paths.Sysfs), "paths.sysfs")
	p.must(a.Paths.Cgroupfs == "" || isCleanPath(a.Paths.Cgroupfs), wantCleanPath(a.Paths.Cgroupfs), "paths.cgroupfs")
	p.must(a.Paths.Rootfs == "" || isCleanPath(a.Paths.Rootfs), wantCleanPath(a.Paths.Rootfs), "paths.rootfs")
	p.must(a.API.Socket == "" || isCleanPath(a.API.Socket), wantCleanPath(a.API.Socket), "api.socket")
	p.must(len(a.API.Socket) <= maxSocketPath,
		fmt.Sprintf("longer than the %d bytes a Unix socket's path can have", maxSocketPath), "api.socket")
	p.must(a.State.Dir == "" || isCleanPath(a.State.Dir), wantCleanPath(a.State.Dir), "state.dir")
	p.must(a.Kubernetes.Kubeconfig == "" || isCleanPath(a.Kubernetes.Kubeconfig), wantCleanPath(a.Kubernetes.Kubeconfig), "kubernetes.kubeconfig")
	p.must(!a.Kubernetes.Standalone || a.Kubernetes.Kubeconfig == "", "a standalone agent has no kubeconfig", "kubernetes.kubeconfig", "kubernetes.standalone")
	for i, root := range a.Workloads.Roots {
		p.must(isCleanPath(root), wantCleanPath(root), fmt.Sprintf("workloads.roots[%d]", i))
	}
	p.must(a.Filesystems.Kubelet == "" || isCleanPath(a.Filesystems.Kubelet), wantCleanPath(a.Filesystems.Kubelet), "filesystems.kubelet")
	for i, dir := range a.Filesystems.Runtimes {
		p.must(isCleanPath(dir), wantCleanPath(dir), fmt.Sprintf("filesystems.runtimes[%d]", i))
	}
	for i, mount := range a.Filesystems.Mounts {
		p.must(isCleanPath(mount), wantCleanPath(mount), fmt.Sprintf("filesystems.mounts[%d]", i))
	}
	p.must(a.Web.ConfigFile == "" || isCleanPath(a.Web.ConfigFile), wantCleanPath(a.Web.ConfigFile), "web.configFile")
	p.must(a.Recording.Dir == "" || isCleanPath(a.Recording.Dir), wantCleanPath(a.Recording.Dir), "recording.dir")
}

func isCleanPath(s string) bool { return path.IsAbs(s) && path.Clean(s) == s }

func wantCleanPath(s string) string {
	return fmt.Sprintf("want an absolute path without .., // or a slash at its end, got %s", quote(s))
}

func durationBetween(p *problems, key string, value, least, most time.Duration) {
	p.must(value >= least && value <= most, fmt.Sprintf("%s is not between %s and %s",
		formatDuration(value), formatDuration(least), formatDuration(most)), key)
}

func intBetween(p *problems, key string, value, least, most int) {
	p.must(value >= least && value <= most, fmt.Sprintf("%d is not between %d and %d", value, least, most), key)
}

// atLeast requires that long is at least times short.
func atLeast(p *problems, long, short period, times int) {
	factor := ""
	if times > 1 {
		factor = strconv.Itoa(times) + " × "
	}
	// Divided, because times × short may overflow.
	p.must(long.value/time.Duration(times) >= short.value, fmt.Sprintf("%s (%s) must be at least %s%s (%s)",
		long.key, formatDuration(long.value), factor, short.key, formatDuration(short.value)), long.key, short.key)
}

func oneOf(p *problems, key, value string, allowed ...string) {
	p.must(slices.Contains(allowed, value),
		fmt.Sprintf("want one of %s, got %s", strings.Join(allowed, ", "), quote(value)), key)
}

// addressProblem is empty for host:port, the host possibly empty or in brackets.
func addressProblem(address string) string {
	host, port, err := net.SplitHostPort(address)
	number, portErr := strconv.ParseUint(port, 10, 64)
	switch {
	case err != nil || strings.ContainsAny(host, " /"):
		return fmt.Sprintf("want host:port (IPv6 as [::1]:9773), got %s", quote(address))
	case portErr != nil || number > maxPort:
		return fmt.Sprintf("want a port from 0 to %d, got %s", maxPort, quote(port))
	}
	return ""
}

func validateMemoryStall(p *problems, key string, m plugins.MemoryStall) {
	p.must(m.Soft.StallFull > 0, "0 would always be met: to turn the rule off, set enabled: false", key+".soft.stallFull")
	p.must(m.Hard.StallFull >= m.Soft.StallFull, fmt.Sprintf("hard must not be easier to reach than soft: stallFull %g is less than %g",
		m.Hard.StallFull, m.Soft.StallFull), key+".hard.stallFull", key+".soft.stallFull")
	p.must(m.Hard.Available <= m.Soft.Available, fmt.Sprintf("hard must not be easier to reach than soft: available %g is more than %g",
		m.Hard.Available, m.Soft.Available), key+".hard.available", key+".soft.available")
	p.must(m.KubeletEvictionHard <= maxEvictionHard, "more than 1Pi of memory", key+".kubeletEvictionHard")
}

// maxFactor is the largest multiple of a baseline.
const maxFactor = 1000

func validateDiskContention(p *problems, key string, d plugins.DiskContention) {
	durationBetween(p, key+".for", d.For, 0, maxDuration)
	durationBetween(p, key+".await", d.Await, time.Microsecond, time.Hour)
	durationBetween(p, key+".awaitRotational", d.AwaitRotational, time.Microsecond, time.Hour)
	intBetween(p, key+".factor", d.Factor, 1, maxFactor)
}
