package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/evict/kube"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
)

const (
	maxSpeed = 10_000_000 // Mbit/s: ten times the fastest Ethernet
	maxFiles = 1 << 40
	maxKills = 1000
	// maxEvictions bounds every eviction rate limit: one a second for an hour.
	maxEvictions = 3600
	// maxAgePeriods is how many times a mount is asked before its values are too
	// old.
	maxAgePeriods = 2
)

func (a Agent) validateEviction(p *problems) {
	e := a.Eviction
	oneOf(p, "eviction.via", e.Via, evict.ViaDirect, evict.ViaController)
	p.must(e.Via != evict.ViaController || a.Lease.Enabled,
		"the agent's Lease carries requests to the controller: want lease.enabled: true", "eviction.via", "lease.enabled")
	durationBetween(p, "eviction.viaFallbackAfter", e.ViaFallbackAfter, kube.DefaultEvictTimeout, maxDuration) // a round waits that long
	durationBetween(p, "eviction.reportOnly", e.ReportOnly, 0, maxDuration)
	durationBetween(p, "eviction.maxAge", e.MaxAge, time.Second, time.Hour)
	durationBetween(p, "eviction.overdueAfter", e.OverdueAfter, 0, maxDuration)
	durationBetween(p, "eviction.kubeletCooldown", e.KubeletCooldown, 0, maxDuration)
	durationBetween(p, "eviction.taints.minimum", e.Taints.Minimum, 0, maxDuration)
	durationBetween(p, "eviction.taints.maximum", e.Taints.Maximum, 0, maxDuration)
	atLeast(p, period{"eviction.taints.maximum", e.Taints.Maximum}, period{"eviction.taints.minimum", e.Taints.Minimum}, 1)
	intBetween(p, "eviction.limits.perRound", e.Limits.PerRound, 1, maxEvictions)
	intBetween(p, "eviction.limits.perMinute", e.Limits.PerMinute, 1, maxEvictions)
	intBetween(p, "eviction.limits.perOwnerHour", e.Limits.PerOwnerHour, 1, maxEvictions)
	for i, name := range e.DryRunPlugins {
		key := fmt.Sprintf("eviction.dryRunPlugins[%d]", i)
		p.must(name != "" && name != "-" && name != "-*", "want the name of a plugin, * or -name", key)
		bare := strings.TrimPrefix(name, "-")
		before := slices.ContainsFunc(e.DryRunPlugins[:i], func(o string) bool { return strings.TrimPrefix(o, "-") == bare })
		p.must(!before, fmt.Sprintf("%s is named twice", quote(bare)), key)
	}
}

func (a Agent) validateNetwork(p *problems) {
	for i, d := range a.Network.Devices {
		key := fmt.Sprintf("network.devices[%d]", i)
		p.must(d.Name != "", "want the name of a device, such as eth0", key+".name")
		before := slices.ContainsFunc(a.Network.Devices[:i], func(o probes.NetworkDevice) bool { return o.Name == d.Name })
		p.must(!before, fmt.Sprintf("%s is named twice", quote(d.Name)), key+".name")
		intBetween(p, key+".speed", d.Speed, 1, maxSpeed)
	}
	n := a.Plugins.NetworkContention
	durationBetween(p, "plugins.networkContention.window", n.Window, minTick, maxDuration)
	durationBetween(p, "plugins.networkContention.clearFor", n.ClearFor, minTick, maxDuration)
	p.must(n.Utilization > 0, "0 would always be met: to turn the rule off, set enabled: false", "plugins.networkContention.utilization")
	p.must(n.Retransmits > 0, "0 would always be met: to turn the rule off, set enabled: false", "plugins.networkContention.retransmits")
}

func validateFilesystem(p *problems, key string, f plugins.FilesystemSpace, probe probes.FilesystemConfig) {
	p.must(f.Available > 0 || f.FilesFree > 0, "0 for both would never be met: to turn the rule off, set enabled: false", key+".available", key+".filesFree")
	p.must(f.Available < 1, "1 would always be met: every file takes some space", key+".available")
	p.must(f.FilesFree < 1, "1 would always be met: the root directory is one", key+".filesFree")
	p.must(f.Available == 0 || f.Enough > 0, "0 would never be met: available: 0 turns this half of the rule off", key+".enough")
	least := 0
	if f.FilesFree > 0 {
		least = 1
	}
	intBetween(p, key+".enoughFiles", f.EnoughFiles, least, maxFiles)
	durationBetween(p, key+".for", f.For, 0, maxDuration)
	durationBetween(p, key+".clearFor", f.ClearFor, minTick, maxDuration)
	durationBetween(p, key+".maxAge", f.MaxAge, time.Second, maxAgePeriods*maxDuration)
	if f.Enabled {
		atLeast(p, period{key + ".maxAge", f.MaxAge}, period{"filesystems.every", probe.Every}, maxAgePeriods)
	}
}

func validateOOMStorm(p *problems, key string, o plugins.OOMStorm) {
	intBetween(p, key+".kills", o.Kills, 1, maxKills)
	intBetween(p, key+".hardKills", o.HardKills, 0, maxKills)
	p.must(o.HardKills == 0 || o.HardKills >= o.Kills, fmt.Sprintf("hard must not be easier to reach than soft: hardKills %d is less than kills %d",
		o.HardKills, o.Kills), key+".hardKills", key+".kills")
	durationBetween(p, key+".window", o.Window, minTick, maxDuration)
	durationBetween(p, key+".clearFor", o.ClearFor, minTick, maxDuration)
}

const (
	maxRunnable   = 100_000     // percent: a thousand tasks for each CPU
	maxRate       = 10_000      // percent: a hundred times the request
	maxMillicores = 100_000_000 // a hundred thousand CPUs
)

func validateCPUContention(p *problems, key string, c plugins.CPUContention) {
	const always = "0 would be met by a healthy node: to turn the rule off, set enabled: false"
	p.must(c.Stall > 0, always, key+".stall")
	intBetween(p, key+".runnable", c.Runnable, 100, maxRunnable)
	p.must(c.Waiting > 0, always, key+".waiting")
	durationBetween(p, key+".for", c.For, 0, maxDuration)
	durationBetween(p, key+".clearFor", c.ClearFor, minTick, maxDuration)
}

func validateCPUSuppression(p *problems, key string, c plugins.CPUSuppression) {
	p.must(c.Supply > 0, "0 would never be met: to turn the rule off, set enabled: false", key+".supply")
	p.must(c.Waiting > 0, "0 would be met by an idle pod", key+".waiting")
	durationBetween(p, key+".for", c.For, minTick, maxDuration)
	durationBetween(p, key+".clearFor", c.ClearFor, minTick, maxDuration)
}

func validateReclaimedOvercommit(p *problems, key string, r plugins.ReclaimedOvercommit) {
	intBetween(p, key+".cpuRate", r.CPURate, 1, maxRate)
	intBetween(p, key+".memoryRate", r.MemoryRate, 1, maxRate)
	intBetween(p, key+".cpu", r.CPU, 0, maxMillicores)
	durationBetween(p, key+".for", r.For, 0, maxDuration)
	durationBetween(p, key+".clearFor", r.ClearFor, minTick, maxDuration)
}

func validateRSSOveruse(p *problems, key string, r plugins.RSSOveruse) {
	intBetween(p, key+".rate", r.Rate, 0, maxRate)
	durationBetween(p, key+".for", r.For, 0, maxDuration)
	durationBetween(p, key+".clearFor", r.ClearFor, minTick, maxDuration)
}

func validateCeilings(p *problems, key string, list []plugins.DiskCeiling) {
	for i, c := range list {
		at := fmt.Sprintf("%s[%d]", key, i)
		p.must(c.Device != "", "want the name of a disk, such as nvme0n1", at+".device")
		before := slices.ContainsFunc(list[:i], func(o plugins.DiskCeiling) bool { return o.Device == c.Device })
		p.must(!before, fmt.Sprintf("%s is named twice", quote(c.Device)), at+".device")
		intBetween(p, at+".iops", c.IOPS, 0, maxIOPS)
		p.must(c.IOPS > 0 || c.BytesPerSecond > 0, "0 for both would never be met: leave the disk out", at+".iops", at+".bytesPerSecond")
	}
}

// maxIOPS is some ten times that of the fastest disks.
const maxIOPS = 100_000_000
