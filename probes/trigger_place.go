package probes

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/cgroup"
	"github.com/plimsoll-dev/plimsoll/probes/internal/psi"
)

// maxTriggerGroups is how many pressure groups, the host and cgroups, may have
// triggers: the kernel starts a real-time thread for each, psimon.
const maxTriggerGroups = 12

// Reasons why a trigger cannot be armed although pressure can be read.
const (
	whyTooManyTriggers   = "limit reached: 12 cgroups have PSI triggers, each costs a kernel thread"
	whyTriggersForbidden = "permission denied: needs CAP_SYS_RESOURCE or a newer kernel, and write permission on the pressure file"
	whyTriggersReadOnly  = "the file system is mounted read-only"
	whyNoKernelFile      = "the pressure file is not on procfs or cgroup2"
)

var errNoKernelFile = errors.New("not on procfs or cgroup2")

// triggerPlace is a pressure file that a trigger can be armed on.
type triggerPlace struct {
	cgroup, resource string // of Trigger
	file             string
	magic            int64 // of the file system that file must be on
}

// String is the place's name in TriggerState.Absent.
func (p triggerPlace) String() string {
	if p.cgroup == "" {
		return "host " + p.resource
	}
	return p.cgroup + " " + p.resource
}

func (p triggerPlace) holds(a armed) bool { return a.Cgroup == p.cgroup && a.Resource == p.resource }

// places returns all pressure files that exist now, the host's first. Triggers
// are on some only: full stall implies some, so a trigger on full never fires
// first. For cpu a task that its own quota throttles stalls like any other, so
// there are no triggers on cpu.
func (t *Triggers) places() []triggerPlace {
	resources := t.resources
	if resources == nil {
		resources = []string{"memory", "io"}
	}
	var list []triggerPlace
	for _, r := range resources {
		list = append(list, triggerPlace{"", r, filepath.Join(t.Paths.Procfs, "pressure", r), unix.PROC_SUPER_MAGIC})
	}
	dir := t.unifiedDir()
	if dir == "" {
		return list
	}
	for _, cgroup := range cgroup.PodParents(dir, t.current.Roots) {
		for _, r := range resources {
			list = append(list, triggerPlace{cgroup, r, dir + cgroup + "/" + r + ".pressure", unix.CGROUP2_SUPER_MAGIC})
		}
	}
	return list
}

// unifiedDir is searched until it is found; it may be mounted after this
// process starts.
func (t *Triggers) unifiedDir() string {
	if t.dir == "" {
		if c, err := cgroup.Find(t.Paths.Procfs, t.Paths.Cgroupfs, nil); err == nil { // the workloads' probe reports the error
			t.dir = c.UnifiedDir()
		}
	}
	return t.dir
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// unprivilegedWindow: without CAP_SYS_RESOURCE, windows must be multiples of it
// (kernel/sched/psi.c). The kernel then checks them with its averages, every 2
// s, and starts no thread.
const unprivilegedWindow = 2 * time.Second

// arm returns the open file that keeps the trigger. If the kernel refuses the
// window, arm tries the next one that needs no privilege, with the same share
// of it stalled.
func (p triggerPlace) arm(s TriggerSettings) (fd int, t Trigger, err error) {
	t = Trigger{Cgroup: p.cgroup, Resource: p.resource, Stall: s.Stall, Window: s.Window}
	if fd, err = p.open(); err != nil {
		return -1, t, fmt.Errorf("open %s: %w", p.file, err)
	}
	err = t.write(fd)
	if errors.Is(err, unix.EINVAL) && t.Window%unprivilegedWindow != 0 {
		t = t.unprivileged()
		err = t.write(fd)
	}
	if err != nil {
		_ = unix.Close(fd) // nothing was written that could be lost
		return -1, t, fmt.Errorf("write %q to %s: %w", t.spec(), p.file, err)
	}
	return fd, t, nil
}

// open refuses files of other file systems, which the write would overwrite.
func (p triggerPlace) open() (int, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(p.file, &st); err != nil {
		return -1, err
	}
	if st.Type != p.magic {
		return -1, errNoKernelFile
	}
	return unix.Open(p.file, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

func (t Trigger) unprivileged() Trigger {
	wanted := t.Window
	t.Window = (wanted + unprivilegedWindow).Truncate(unprivilegedWindow)
	t.Stall = time.Duration(float64(t.Stall) * float64(t.Window) / float64(wanted))
	return t
}

// spec is the trigger in the kernel's format, in µs.
func (t Trigger) spec() string {
	return fmt.Sprintf("some %d %d", t.Stall.Microseconds(), t.Window.Microseconds())
}

func (t Trigger) write(fd int) error {
	_, err := unix.Write(fd, append([]byte(t.spec()), 0)) // the kernel expects a terminating zero
	return err
}

// reason maps an error of arm to a reason; empty if the cgroup was removed or
// does not exist yet.
func (p triggerPlace) reason(err error) string {
	switch {
	case errors.Is(err, unix.ENODEV):
		return "" // removed meanwhile
	case errors.Is(err, fs.ErrNotExist) && p.cgroup != "":
		return p.reasonNoFile()
	case errors.Is(err, errNoKernelFile):
		return whyNoKernelFile
	case errors.Is(err, unix.EROFS):
		return whyTriggersReadOnly
	case errors.Is(err, fs.ErrPermission):
		return whyTriggersForbidden
	}
	return psi.Reason(err)
}

// reasonNoFile is the reason for a cgroup without pressure file: the kernel
// hides the file while PSI is off.
func (p triggerPlace) reasonNoFile() string {
	dir := filepath.Dir(p.file)
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.pressure"))
	switch {
	case err == nil && string(bytes.TrimSpace(b)) == "0":
		return psi.WhyOffForCgroup
	case !isDir(dir):
		return ""
	}
	return psi.WhyNone
}
