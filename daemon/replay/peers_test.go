package replay

import (
	"fmt"
	"math"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// alarm is the level of a resource by a detector at one sample.
type alarm struct {
	resource plugins.Resource
	scope    string // a device, where the judge knows devices
	level    plugins.Level
}

// judge is a rule that is asked at each sample, oldest first.
type judge interface {
	judge(s *snapshot.Sample) []alarm
}

// average is the kernel's avg10 of one total of PSI, as a percentage
// (kernel/sched/psi.c: update_averages, every two seconds; include/linux/sched/loadavg.h:
// calc_load; EXP_10s is 2048/e^(2/10)). A recording has totals alone: between
// samples they are taken to have grown evenly, and before the first to have stood.
type average struct {
	next  time.Duration // when it is updated, on CLOCK_MONOTONIC
	at    time.Duration
	total float64 // µs at the last sample
	was   float64 // µs at the last update
	avg10 float64
	begun bool
}

const psiPeriod = 2 * time.Second

func (a *average) add(at time.Duration, total uint64) float64 {
	if !a.begun {
		*a = average{begun: true, at: at, next: at + psiPeriod, total: float64(total), was: float64(total)}
		return 0
	}
	for ; a.next <= at; a.next += psiPeriod {
		then := a.total + (float64(total)-a.total)*float64(a.next-a.at)/float64(at-a.at)
		share := min(100, 100*(then-a.was)/float64(psiPeriod.Microseconds()))
		keep := math.Exp(-psiPeriod.Seconds() / 10)
		a.avg10 = a.avg10*keep + share*(1-keep)
		a.was = then
	}
	a.at, a.total = at, float64(total)
	return a.avg10
}

// naivePSI alarms while avg10 of full is above 10 % in /proc/pressure/memory or
// in /proc/pressure/io: an alert on PSI after the kernel's
// Documentation/accounting/psi.rst. No product has it as its default; the number
// is common in such alerts.
type naivePSI struct{ memory, io average }

const naiveLine = 10 // %

func (n *naivePSI) judge(s *snapshot.Sample) (list []alarm) {
	memory, _ := s.Pressure.Memory.Full.Get()
	io, _ := s.Pressure.IO.Full.Get()
	if n.memory.add(s.Monotonic, memory) > naiveLine {
		list = append(list, alarm{plugins.Memory, "", plugins.Soft})
	}
	if n.io.add(s.Monotonic, io) > naiveLine {
		list = append(list, alarm{plugins.Disk, "", plugins.Soft})
	}
	return list
}

// oomd is systemd-oomd 252 with its defaults, watching the root slice (oomd.conf(5),
// systemd.resource-control(5): ManagedOOMMemoryPressure=kill, ManagedOOMSwap=kill on -.slice).
// It kills when memory full avg10 has been above DefaultMemoryPressureLimit= 60 %
// for DefaultMemoryPressureDurationSec= 30 s and there was reclaim since it
// looked last (src/oom/oomd-manager.c), or when of swap and of memory more than
// SwapUsedLimit= 90 % is used. A recording has no pgscan of the root cgroup, which
// counts reclaim at limits too: any page that was scanned or taken back counts.
type oomd struct {
	full      average
	most      float64       // of avg10, so far
	above     time.Duration // since when; 0: it is not
	reclaimed uint64
}

const (
	oomdPressure = 60 // %
	oomdFor      = 30 * time.Second
	oomdUsed     = 0.90
)

func (o *oomd) judge(s *snapshot.Sample) []alarm {
	full, _ := s.Pressure.Memory.Full.Get()
	avg10 := o.full.add(s.Monotonic, full)
	o.most = max(o.most, avg10)
	reclaimed := allReclaimed(s)
	moved := reclaimed > o.reclaimed
	o.reclaimed = reclaimed
	switch {
	case avg10 <= oomdPressure:
		o.above = 0
	case o.above == 0:
		o.above = s.Monotonic
	}
	pressed := o.above > 0 && s.Monotonic-o.above >= oomdFor && moved
	if pressed || usedUp(s.Memory) {
		return []alarm{{plugins.Memory, "", plugins.Hard}}
	}
	return nil
}

// near is how near it came.
func (o *oomd) near() string { return fmt.Sprintf("avg10 at most %.0f %%", o.most) }

func (k *kubelet) near() string { return fmt.Sprintf("available at least %d Mi", k.least>>20) }

func allReclaimed(s *snapshot.Sample) uint64 {
	direct, _ := s.Memory.ScansDirect.Get()
	kswapd, _ := s.Memory.ScansKswapd.Get()
	sum := direct + kswapd
	for i := range s.Workloads {
		own, _ := s.Workloads[i].Reclaimed.Get()
		sum += own
	}
	return sum
}

func usedUp(m snapshot.Memory) bool {
	total, _ := m.TotalBytes.Get()
	available, _ := m.AvailableBytes.Get()
	swap, _ := m.SwapTotalBytes.Get()
	free, _ := m.SwapFreeBytes.Get()
	return swap > 0 && float64(swap-free) > oomdUsed*float64(swap) && float64(total-available) > oomdUsed*float64(total)
}

// kubelet is the kubelet's memory.available with its default threshold of 100Mi,
// looked at every 10 s (Kubernetes, "Node-pressure Eviction": memory.available :=
// capacity - workingSet; the working set is usage without inactive_file). Usage is
// taken to be all that is not free, as a recording has it: the kernel's own pages
// are in it, so this may alarm a little before a real kubelet does.
type kubelet struct {
	looked time.Duration
	under  bool
	least  uint64 // available at any look, in bytes
}

const (
	kubeletHard  = 100 << 20
	kubeletEvery = 10 * time.Second
)

func (k *kubelet) judge(s *snapshot.Sample) []alarm {
	if k.looked == 0 || s.Monotonic-k.looked >= kubeletEvery {
		free, _ := s.Memory.FreeBytes.Get()
		inactive, _ := s.Memory.InactiveFileBytes.Get()
		if available := free + inactive; k.looked == 0 || available < k.least {
			k.least = available
		}
		k.looked, k.under = s.Monotonic, free+inactive < kubeletHard
	}
	if k.under {
		return []alarm{{plugins.Memory, "", plugins.Hard}}
	}
	return nil
}
