package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// keptFile is a file of a cgroup that is kept open.
type keptFile struct {
	fd      int
	missing error  // error of the last attempt to open it
	why     string // the reason derived from it
	again   time.Duration
}

// The kept files. Two of them may be one file in one cgroup version, and one
// may not exist in the other.
type fileID int

const (
	fileMemory fileID = iota
	fileEvents
	fileCPU
	fileIO
	fileIOBytes
	filePressureCPU
	filePressureMemory
	filePressureIO
	keptFiles
)

// readKept reads a file that is read again and again, and keeps the descriptor
// if the budget allows.
func (t *trackedWorkload) readKept(id fileID, i int, name string) ([]byte, error) {
	f := &t.files[id]
	if f.fd < 0 {
		if f.missing != nil && t.c.now < f.again {
			return nil, f.missing
		}
		fd, err := t.openFile(i, name)
		if err != nil {
			f.missing, f.again, f.why = fmt.Errorf("%s: %w", name, err), t.c.now+recheckCgroup, ""
			if isOutOfResources(err) {
				f.again = t.c.now
			}
			return nil, f.missing
		}
		f.fd, f.missing = fd, nil
		if !t.c.fds.take() {
			defer t.closeUnkept(f)
		}
	}
	return t.readOpen(f.fd, name)
}

// openFile opens a file of the cgroup. If it is missing, either the kernel has
// no such file here or the cgroup was removed.
func (t *trackedWorkload) openFile(i int, name string) (int, error) {
	d, mine, err := t.c.open(t.node, i)
	if err != nil {
		t.removed = t.removed || isRemoved(err) // it existed when it was listed
		return -1, err
	}
	if mine {
		defer d.close()
	}
	fd, err := d.openFile(name)
	if errors.Is(err, fs.ErrNotExist) && !d.alive() {
		t.removed = true
	}
	return fd, err
}

// readOnce reads a file by its path, without keeping it open: the kept files were
// read just before, which proved that this path is the known cgroup. If none
// could be kept, the inode is checked at the end of the read.
func (t *trackedWorkload) readOnce(i int, name string) ([]byte, error) {
	fd, err := t.c.path.open(t.c.dirs[i], t.cgroup, "/", name)
	if err != nil {
		t.removed = t.removed || isRemoved(err) && !t.c.alive(t.node, i)
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer closeFD(fd)
	return t.readOpen(fd, name)
}

// readOpen reads an open file of the cgroup, and notes if the cgroup was
// removed meanwhile.
func (t *trackedWorkload) readOpen(fd int, name string) (text []byte, err error) {
	t.c.buf, err = readShown(fd, name, t.c.buf)
	t.removed = t.removed || isRemoved(err)
	return t.c.buf, err
}

func (t *trackedWorkload) closeFile(f *keptFile) {
	if f.fd >= 0 {
		t.c.fds.left++
		t.closeUnkept(f)
	}
}

func (t *trackedWorkload) closeUnkept(f *keptFile) {
	closeFD(f.fd)
	f.fd = -1
}
