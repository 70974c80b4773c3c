package throttle

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Hierarchy is the mounted hierarchy of a cgroup controller.
type Hierarchy struct {
	Dir string
	V1  bool
}

// Tree are the cgroup file systems of a host: io.max, cpu.max and memory.high, or
// blkio.throttle.{read,write}_bps_device and cpu.cfs_quota_us of v1, which has no
// memory.high (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/blkio-controller.rst and
// scheduler/sched-bwc.rst).
type Tree struct{ IO, CPU, Memory Hierarchy }

const (
	// leastBytes is the least that io.max takes, in bytes per second: "val > 1" in
	// tg_set_limit of block/blk-throttle.c.
	leastBytes = 2
	// leastQuota is the kernel's minimum in µs, and wholePeriod its default.
	leastQuota  = 1000
	wholePeriod = 100_000
	// unlimited is v2's word for no limit.
	unlimited = "max"
)

// Get implements Files.
func (t Tree) Get(k Knob) (uint64, error) {
	h, file, err := t.file(k)
	if err != nil {
		return 0, err
	}
	text, err := t.read(h, k, file)
	if err != nil {
		return 0, err
	}
	switch {
	case k.disk() && h.V1:
		return number(lineOf(text, k.Device))
	case k.disk():
		return number(fieldOf(lineOf(text, k.Device), field(k)+"="))
	}
	quota, _, _ := strings.Cut(text, " ")
	return number(quota)
}

// Set implements Files.
func (t Tree) Set(k Knob, limit uint64) error {
	h, file, err := t.file(k)
	if err != nil {
		return err
	}
	text := strconv.FormatUint(limit, 10)
	switch {
	case limit == 0 && !h.V1:
		text = unlimited
	case limit == 0 && k.Name == CPU:
		text = "-1"
	}
	switch {
	case k.disk() && h.V1:
		text = k.Device + " " + text
	case k.disk():
		text = k.Device + " " + field(k) + "=" + text
	}
	return t.write(h, k, file, text)
}

// maxContainers bounds the cgroups below one that are limited.
const maxContainers = 64

// IOCgroups are the cgroups in which a limit on a disk must be written to hold for all
// processes in this one and below it. On v1 blk-throttle is flat: a limit holds for the processes of
// that very cgroup, so it is written to those of the containers, too, and each of them
// may use as much as is meant for all.
func (t Tree) IOCgroups(cgroup string) []string {
	all := []string{cgroup}
	if !t.IO.V1 {
		return all
	}
	for i := 0; i < len(all) && len(all) < maxContainers; i++ {
		below, err := os.ReadDir(filepath.Join(t.IO.Dir, all[i]))
		if err != nil {
			continue // it is gone
		}
		for _, d := range below {
			if d.IsDir() {
				all = append(all, path.Join(all[i], d.Name()))
			}
		}
	}
	return all
}

// Effective implements Files.
func (t Tree) Effective(k Knob, per float64) (uint64, error) {
	if k.disk() {
		return uint64(max(leastBytes, math.Round(per))), nil
	}
	h, _, err := t.file(k)
	if err != nil {
		return 0, err
	}
	if k.Name == Memory {
		return t.atLeastHeld(h, k, uint64(per))
	}
	period := uint64(wholePeriod)
	if h.V1 {
		text, err := t.read(h, k, "cpu.cfs_period_us")
		if err != nil {
			return 0, err
		}
		period, err = number(text)
		if err != nil {
			return 0, err
		}
	} else if text, err := t.read(h, k, "cpu.max"); err != nil {
		return 0, err
	} else if _, of, both := strings.Cut(text, " "); both {
		if period, err = number(of); err != nil {
			return 0, err
		}
	}
	return max(leastQuota, uint64(per*float64(period))), nil
}

// atLeastHeld is a limit of memory, but no less than what the cgroup holds. The kernel
// rounds down to pages.
func (t Tree) atLeastHeld(h Hierarchy, k Knob, limit uint64) (uint64, error) {
	text, err := t.read(h, k, "memory.current")
	if err != nil {
		return 0, err
	}
	held, err := number(text)
	page := uint64(os.Getpagesize())
	return (max(limit, held) + page - 1) / page * page, err
}

// field is the key of io.max.
func field(k Knob) string {
	if k.Name == Read {
		return "rbps"
	}
	return "wbps"
}

// file returns the hierarchy and the file of a knob.
func (t Tree) file(k Knob) (Hierarchy, string, error) {
	h, v1, v2 := t.IO, "blkio.throttle."+k.Name+"_bps_device", "io.max"
	switch k.Name {
	case CPU:
		h, v1, v2 = t.CPU, "cpu.cfs_quota_us", "cpu.max"
	case Memory:
		h, v1, v2 = t.Memory, "", "memory.high"
	}
	switch {
	case !k.disk() && k.Name != CPU && k.Name != Memory, k.Name == Memory && h.V1, !filepath.IsLocal(strings.TrimPrefix(k.Cgroup, "/")):
		return h, "", fmt.Errorf("invalid cgroup limit: %s", k)
	case h.Dir == "":
		return h, "", errors.New("no cgroup hierarchy with its controller is mounted")
	case h.V1:
		return h, v1, nil
	}
	return h, v2, nil
}

func (t Tree) read(h Hierarchy, k Knob, file string) (string, error) {
	b, err := os.ReadFile(filepath.Join(h.Dir, k.Cgroup, file))
	return strings.TrimSpace(string(b)), h.classify(k, err)
}

func (t Tree) write(h Hierarchy, k Knob, file, text string) error {
	f, err := os.OpenFile(filepath.Join(h.Dir, k.Cgroup, file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return h.classify(k, err)
	}
	_, err = f.WriteString(text)
	return h.classify(k, errors.Join(err, f.Close()))
}

// classify wraps the error of a deleted cgroup or device in ErrGone, unlike that of a
// missing file.
func (h Hierarchy) classify(k Knob, err error) error {
	switch {
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%w: %w", ErrGone, err)
	case errors.Is(err, fs.ErrNotExist):
		if _, dir := os.Stat(filepath.Join(h.Dir, k.Cgroup)); errors.Is(dir, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
		return fmt.Errorf("%w (the cgroup controller is not enabled there)", err)
	}
	return err
}

// lineOf returns the line of a device, without its number.
func lineOf(text, device string) string {
	for line := range strings.Lines(text) {
		if of, rest, found := strings.Cut(strings.TrimSpace(line), " "); found && of == device {
			return rest
		}
	}
	return ""
}

func fieldOf(line, key string) string {
	for f := range strings.FieldsSeq(line) {
		if value, is := strings.CutPrefix(f, key); is {
			return value
		}
	}
	return ""
}

// number parses a limit; 0 for all that means none.
func number(text string) (uint64, error) {
	if text == "" || text == unlimited || strings.HasPrefix(text, "-") {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("limit %q is not a number", text)
	}
	return n, nil
}
