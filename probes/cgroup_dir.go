package probes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// cgroupDir is an open directory of one cgroup in one hierarchy. All files are
// opened relative to it: should another cgroup take its path meanwhile, what
// is read is still of the one that was opened, or not there.
type cgroupDir int

const noDir = cgroupDir(-1)

func openDir(path string) (cgroupDir, error) {
	for {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return cgroupDir(fd), err
		}
	}
}

func (d cgroupDir) close() {
	if d != noDir {
		_ = unix.Close(int(d)) // opened for its path alone: there is nothing to lose
	}
}

func (d cgroupDir) inode() (uint64, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(d), &st)
	return st.Ino, err
}

// alive says whether the cgroup has not been removed since it was opened:
// every cgroup has this file, and a removed one has none.
func (d cgroupDir) alive() bool {
	return unix.Faccessat(int(d), "cgroup.procs", unix.F_OK, 0) == nil
}

// read appends a file to buf[:0], which grows as needed. A cgroup's file costs
// most in the kernel; os.ReadFile would add a stat and a turn of the poller.
func (d cgroupDir) read(name string, buf []byte) ([]byte, error) {
	fd, err := d.openFile(name)
	if err != nil {
		return buf[:0], fmt.Errorf("%s: %w", name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	buf = buf[:0]
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return buf[:0], fmt.Errorf("%s: %w", name, err)
		case n == 0:
			return buf, nil
		default:
			buf = buf[:len(buf)+n]
		}
	}
}

func (d cgroupDir) openFile(name string) (int, error) {
	for {
		fd, err := unix.Openat(int(d), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// isGone tells errors of a cgroup that was removed: its files cannot be opened
// any more (ENOENT), and those that are open cannot be read (ENODEV).
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// children lists the cgroups directly below one, by name.
func children(dir string) ([]string, error) {
	st, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	// cgroupfs counts the directories in the links: most cgroups have none,
	// and a list of sixty files need not be read to know it.
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && sys.Nlink == 2 {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// eachBelow calls visit for every cgroup below one in the same hierarchy, not
// for that one itself. Those that are removed meanwhile are passed over.
func eachBelow(dir string, visit func(cgroupDir) error) error {
	names, err := children(dir)
	if err != nil {
		return ignoreGone(err)
	}
	for _, name := range names {
		below := dir + "/" + name
		if err := visitOne(below, visit); err != nil {
			return err
		}
		if err := eachBelow(below, visit); err != nil {
			return err
		}
	}
	return nil
}

func visitOne(dir string, visit func(cgroupDir) error) error {
	d, err := openDir(dir)
	if err != nil {
		return ignoreGone(err)
	}
	defer d.close()
	return ignoreGone(visit(d))
}

func ignoreGone(err error) error {
	if isGone(err) {
		return nil
	}
	return err
}
