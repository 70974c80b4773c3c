package probes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/cgroup"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Paths are the mountpoints of the host's kernel file systems.
type Paths struct {
	// Procfs is normally /proc, Sysfs /sys. Cgroupfs is found through Procfs
	// when empty.
	Procfs, Sysfs, Cgroupfs string
	// Rootfs is where the host's root directory is mounted; empty: pid 1's
	// root, through Procfs.
	Rootfs string
}

// Host reads Samples of the machine it runs on. It belongs to one goroutine.
type Host struct {
	paths        Paths
	proc         procfs.FS
	roots        []string // below which workloads are searched
	cgroups      *cgroup.Reader
	cgroupsError error // cgroups is nil, or searches below other roots
	disks        diskProbe
	nics         nicProbe
	squeezes     squeezes
	numa         numaProbe
	softnet      []softnetCPU // reused for each read
	files        procFiles
	reads        int
	clock        func(id int32) (time.Duration, error)
	// filesystems is shared with the goroutines that it starts.
	filesystems *filesystems
}

// NewHost checks the paths and finds the cgroup layout; roots are the cgroup
// paths below which workloads are searched, everywhere if empty. A missing
// procfs or sysfs is an error. Without cgroupfs the workloads are absent and
// their probe has the reason.
func NewHost(paths Paths, roots []string) (*Host, error) {
	h := &Host{paths: paths, files: procFiles{root: paths.Procfs}, disks: newDiskProbe(paths), clock: kernelClock}
	var err error
	if h.proc, err = procfs.NewFS(paths.Procfs); err != nil {
		return nil, fmt.Errorf("procfs %s: %w", paths.Procfs, err)
	}
	if _, err = os.Stat(filepath.Join(paths.Procfs, "stat")); err != nil {
		return nil, fmt.Errorf("procfs %s: %w (is it mounted?)", paths.Procfs, err)
	}
	if _, err = os.Stat(paths.Sysfs); err != nil {
		return nil, fmt.Errorf("sysfs %s: %w", paths.Sysfs, err)
	}
	h.nics = newNICProbe(paths, h.proc)
	h.filesystems = newFilesystems(mountTable{paths, h.proc})
	h.FollowRoots(roots)
	return h, nil
}

// CgroupFlavour returns v1, v2 or hybrid, or the error that no layout was
// found.
func (h *Host) CgroupFlavour() (string, error) {
	if h.cgroupsError != nil {
		return "", h.cgroupsError
	}
	return h.cgroups.Flavour(), nil
}

// CgroupHierarchy is cgroup.Reader.Hierarchy; empty if there is no layout.
func (h *Host) CgroupHierarchy(controller string) (dir string, v1 bool) {
	if h.cgroupsError != nil {
		return "", false
	}
	return h.cgroups.Hierarchy(controller)
}

// Read takes one Sample. A probe that fails costs its own part only: those
// values are absent and Sample.Probes has the error. Read returns an error only
// if the clocks cannot be read.
func (h *Host) Read() (*snapshot.Sample, error) {
	s := &snapshot.Sample{Time: time.Now().Round(0)}
	var err error
	if s.Monotonic, err = h.clock(unix.CLOCK_MONOTONIC); err != nil {
		return nil, fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
	}
	if s.Boottime, err = h.clock(unix.CLOCK_BOOTTIME); err != nil {
		return nil, fmt.Errorf("read CLOCK_BOOTTIME: %w", err)
	}
	observe(s, "boot", h.readBootID)
	observe(s, "cpu", func(s *snapshot.Sample) error { return readCPU(&h.files, s) })
	observe(s, "memory", h.readMemory)
	observe(s, "vmstat", h.readVMStat)
	observe(s, "pressure", func(s *snapshot.Sample) error { return readPressure(&h.files, s) })
	observe(s, "disks", h.disks.read)
	observe(s, "nics", h.nics.read)
	observe(s, "network", h.readNetwork)
	observe(s, "softnet", h.readSoftnet)
	if h.numa.follow {
		observe(s, "numa", h.readNUMA)
	}
	observe(s, "workloads", h.readWorkloads)
	if h.cgroupsError == nil {
		s.Probes[len(s.Probes)-1].Note = h.cgroups.Note()
	}
	observe(s, "filesystems", h.readFilesystems)
	h.reads++
	s.Sort()
	return s, nil
}

// Hurry has the next Read read all workloads, however much of a CPU that takes.
func (h *Host) Hurry() {
	if h.cgroups != nil {
		h.cgroups.Hurry()
	}
}

// procFiles reads files of procfs into one buffer.
type procFiles struct {
	root string
	text []byte
}

// read reads a file. The text is valid until the next call.
func (p *procFiles) read(file string) ([]byte, error) { return p.readPath(filepath.Join(p.root, file)) }

func (p *procFiles) readPath(path string) ([]byte, error) {
	var err error
	p.text, err = readWhole(unix.AT_FDCWD, path, p.text)
	return p.text, err
}

// observe runs one reader and records its duration and error. It recovers a
// panic: a bug in a library's parser must not end the agent.
func observe(s *snapshot.Sample, name string, read func(*snapshot.Sample) error) {
	start := time.Now()
	p := snapshot.Probe{Name: name}
	if err := recovering(func() error { return read(s) }); err != nil {
		p.Error = err.Error()
	}
	p.Duration = time.Since(start)
	s.Probes = append(s.Probes, p)
}

func recovering(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return f()
}

func kernelClock(id int32) (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}

var errNoBootID = errors.New("/proc/sys/kernel/random/boot_id is empty")

func (h *Host) readBootID(s *snapshot.Sample) error {
	b, err := os.ReadFile(filepath.Join(h.paths.Procfs, "sys/kernel/random/boot_id"))
	s.BootID = strings.TrimSpace(string(b))
	if err == nil && s.BootID == "" {
		err = errNoBootID
	}
	return err
}

func (h *Host) readWorkloads(s *snapshot.Sample) error {
	if h.cgroupsError != nil {
		if h.cgroupsError = h.findCgroups(); h.cgroupsError != nil {
			return h.cgroupsError
		}
	}
	var err error
	h.cgroups.NUMA = len(s.NUMANodes) > 0
	s.IOSource = h.cgroups.IOSource()
	s.Workloads, err = h.cgroups.Read(s.Monotonic)
	return err
}

// oneLine joins errors into one line, since a probe's error is shown as one.
func oneLine(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	words := make([]string, len(errs))
	for i, e := range errs {
		words[i] = e.Error()
	}
	return errors.New(strings.Join(words, "; "))
}

// FollowRoots finds the cgroup layout again, and searches workloads below roots from
// the next Read on.
func (h *Host) FollowRoots(roots []string) {
	usable := h.cgroups != nil && h.cgroupsError == nil && slices.Equal(roots, h.roots)
	h.roots = slices.Clone(roots)
	if err := h.findCgroups(); err != nil && !usable {
		h.cgroupsError = err
	}
}

// findCgroups finds the cgroup layout. What is known of the workloads stays while it is as
// before: counters of cgroups that are gone are in no file.
func (h *Host) findCgroups() error {
	found, err := cgroup.Find(h.paths.Procfs, h.paths.Cgroupfs, h.roots)
	if err != nil {
		return err
	}
	h.cgroupsError = nil
	if h.cgroups != nil && h.cgroups.Same(found) {
		return nil
	}
	if h.cgroups != nil {
		h.cgroups.Close()
	}
	h.cgroups = found
	return nil
}

// Root is the directory where the host's root is reached, or why it is not. It does
// not belong to the goroutine of Read.
func (h *Host) Root() (string, error) {
	root, _, err := mountTable{h.paths, h.proc}.read()
	return root, err
}

// FollowNetwork applies c from the next Read on.
func (h *Host) FollowNetwork(c NetworkConfig) { h.nics.follow(c) }

// Close closes the files that are kept open between reads. It starts no further call of
// filesystems and waits for running ones, except those that hang, which only the kernel can
// end. It belongs to the goroutine of Read.
func (h *Host) Close() {
	if h.cgroups != nil {
		h.cgroups.Close()
	}
	h.filesystems.close()
}

// FollowFilesystems watches the mounts that c selects from the next Read on.
// Without a period, as before the first call, none is watched.
func (h *Host) FollowFilesystems(c FilesystemConfig) { h.filesystems.follow(c) }

// readFilesystems takes the latest values, and never waits for a mount.
func (h *Host) readFilesystems(s *snapshot.Sample) error {
	var err error
	s.Filesystems, err = h.filesystems.read(time.Now())
	return err
}
