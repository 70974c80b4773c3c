package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/e2e/vm/rungs"
)

// setting is one value of a file: set while the rung is on, and what takes it off.
type setting struct{ path, on, off string }

// used is what the culprit used in a second before the rung was set.
type used struct {
	disk    float64 // bytes, of each direction
	cpu     float64 // CPUs
	request float64 // ms, the sufferer's median while nothing pressed
}

const (
	// share of its use is left to a culprit that is throttled.
	share     = 0.2
	periodUS  = 100_000
	leastRate = 1 << 20
)

// settings of a rung.
func (t tree) settings(u used) ([]setting, error) {
	rate := strconv.Itoa(max(leastRate, int(u.disk*share)))
	quota := strconv.Itoa(max(1000, int(u.cpu*share*periodUS)))
	of := func(controller, name, on, off string) []setting {
		return []setting{{t.file(controller, culprit, name), on, off}}
	}
	switch t.Rung {
	case rungs.None:
		return nil, nil
	case rungs.IOMax:
		return of("io", "io.max", t.Device+" rbps="+rate+" wbps="+rate, t.Device+" rbps=max wbps=max"), nil
	case rungs.IOWeight:
		return of("io", "io.weight", "default 1", "default 100"), nil
	case rungs.BFQWeight:
		return of("io", "io.bfq.weight", "1", "100"), nil
	case rungs.IOLatency:
		target := strconv.Itoa(int(2000 * max(1, u.request)))
		return []setting{{t.file("io", sufferer, "io.latency"), t.Device + " target=" + target, t.Device + " target=max"}}, nil
	case rungs.CPUMax:
		return of("cpu", "cpu.max", quota+" "+strconv.Itoa(periodUS), "max "+strconv.Itoa(periodUS)), nil
	case rungs.CPUWeight:
		return of("cpu", "cpu.weight", "1", "100"), nil
	case rungs.MemoryHigh, rungs.MemoryBelow:
		return t.memoryHigh()
	case rungs.Freeze:
		return of("", "cgroup.freeze", "1", "0"), nil
	case rungs.PIDs:
		return t.fewer()
	case rungs.Blkio, rungs.BlkioInner:
		return t.blkio(rate), nil
	case rungs.BlkioWeight:
		return of("blkio", "blkio.bfq.weight", "1", "100"), nil
	case rungs.Quota:
		return of("cpu", "cpu.cfs_quota_us", quota, "-1"), nil
	case rungs.Shares:
		return of("cpu", "cpu.shares", "2", "1024"), nil
	case rungs.FreezerState:
		return of("freezer", "freezer.state", "FROZEN", "THAWED"), nil
	}
	return nil, fmt.Errorf("no such rung: %q", t.Rung)
}

// memoryHigh lets the pod keep what it has, or four fifths of it.
func (t tree) memoryHigh() ([]setting, error) {
	current, err := number(t.file("memory", culprit, "memory.current"))
	if err != nil {
		return nil, err
	}
	if t.Rung == rungs.MemoryBelow {
		current = current / 5 * 4
	}
	return []setting{{t.file("memory", culprit, "memory.high"), strconv.Itoa(current), "max"}}, nil
}

// fewer is a fifth of the processes there are.
func (t tree) fewer() ([]setting, error) {
	current, err := number(t.file("pids", culprit, "pids.current"))
	if err != nil {
		return nil, err
	}
	return []setting{{t.file("pids", culprit, "pids.max"), strconv.Itoa(max(1, current/5)), "max"}}, nil
}

func (t tree) blkio(rate string) []setting {
	var all []setting
	for _, direction := range []string{"read", "write"} {
		name := "blkio.throttle." + direction + "_bps_device"
		if t.Rung == rungs.BlkioInner {
			name = filepath.Join(inner, name)
		}
		all = append(all, setting{t.file("blkio", culprit, name), t.Device + " " + rate, t.Device + " 0"})
	}
	return all
}

// prepare is what a cell needs before it begins: how the file system writes, BFQ, or
// the cost model of the disk. A kernel that has not what it needs makes the cell absent.
func (t tree) prepare() error {
	option := "dioread_nolock"
	if t.Load == rungs.Ordered {
		option = "dioread_lock"
	}
	if err := unix.Mount("", t.Dir, "", unix.MS_REMOUNT, option); err != nil {
		return fmt.Errorf("mount %s anew with %s: %w", t.Dir, option, err)
	}
	disk, err := os.Readlink("/sys/dev/block/" + t.Device)
	if err != nil {
		return err
	}
	scheduler := filepath.Join("/sys/block", filepath.Base(disk), "queue/scheduler")
	model := filepath.Join(t.Root, "io.cost.qos")
	if !t.v1 {
		if err := write(model, t.Device+" enable=0"); err != nil && t.Rung == rungs.IOWeight {
			return err
		}
	}
	switch t.Rung {
	case rungs.BFQWeight, rungs.BlkioWeight:
		return write(scheduler, "bfq")
	case rungs.IOWeight:
		return write(model, t.Device+" enable=1")
	}
	return write(scheduler, "none")
}

// apply sets a rung and returns what was set, how long the longest write took, and how
// long a freezer took until it said that all are frozen; 0 where there is none.
func (t tree) apply(settings []setting) (set []string, wrote, took time.Duration, err error) {
	begun := time.Now()
	for _, s := range settings {
		one := time.Now()
		if err := write(s.path, s.on); err != nil {
			return set, 0, 0, err
		}
		wrote = max(wrote, time.Since(one))
		set = append(set, filepath.Base(s.path)+": "+s.on)
	}
	for (t.Rung == rungs.Freeze || t.Rung == rungs.FreezerState) && !t.frozen() {
		if took = time.Since(begun); took > 5*time.Second {
			return set, wrote, took, nil
		}
		time.Sleep(time.Millisecond)
	}
	if t.Rung == rungs.Freeze || t.Rung == rungs.FreezerState {
		took = time.Since(begun)
	}
	return set, wrote, took, nil
}

func (t tree) frozen() bool {
	if t.v1 {
		b, err := os.ReadFile(t.file("freezer", culprit, "freezer.state"))
		return err == nil && strings.TrimSpace(string(b)) == "FROZEN"
	}
	n, err := field(t.file("", culprit, "cgroup.events"), "frozen")
	return err == nil && n == 1
}

// lift takes a rung off.
func lift(settings []setting) error {
	for _, s := range settings {
		if err := write(s.path, s.off); err != nil {
			return err
		}
	}
	return nil
}
