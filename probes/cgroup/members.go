package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of Members.
const (
	maxMemberDirs  = 256     // cgroups that are looked into
	maxMemberBytes = 1 << 20 // of each cgroup.procs, some 130,000 processes
)

// Members returns the IDs of the processes in a cgroup and in those below it, in
// order: of the first hierarchy that has any. It reads each time, keeps nothing open,
// and belongs to no sample. foreign counts processes of another PID namespace, whose
// IDs are not known here. The error says why some, or all, are missing.
func Members(ctx context.Context, procRoot, root, cgroup string) (pids []int, foreign int, err error) {
	r, err := Find(procRoot, root, nil)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	var problem error
	for _, dir := range r.dirs[:r.walked] {
		m := members{}
		m.addTree(ctx, dir+cgroup)
		if len(m.pids)+m.foreign > 0 {
			slices.Sort(m.pids)
			return slices.Compact(m.pids), m.foreign, m.problem
		}
		if problem == nil {
			problem = m.problem
		}
	}
	return nil, 0, problem
}

type members struct {
	pids    []int
	foreign int
	dirs    int
	problem error // the first
}

func (m *members) addTree(ctx context.Context, dir string) {
	if m.dirs++; m.dirs > maxMemberDirs || ctx.Err() != nil {
		m.missed(fmt.Errorf("more than %d cgroups, or too slow: not all of them were looked into", maxMemberDirs))
		return
	}
	if err := m.add(dir + "/cgroup.procs"); err != nil && !isRemoved(err) && !errors.Is(err, unix.EOPNOTSUPP) { // of a threaded one its parent has the process
		m.missed(err)
	}
	names, err := appendDirs(nil, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.missed(err)
	}
	for _, name := range names {
		if m.dirs <= maxMemberDirs {
			m.addTree(ctx, dir+"/"+name)
		}
	}
}

func (m *members) missed(err error) {
	if m.problem == nil {
		m.problem = err
	}
}

func (m *members) add(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxMemberBytes))
	if err != nil {
		return err
	}
	if len(text) == maxMemberBytes {
		text = text[:max(0, strings.LastIndexByte(string(text), '\n'))]
		m.missed(fmt.Errorf("%s is longer than %d bytes", file, maxMemberBytes))
	}
	for line := range strings.Lines(string(text)) {
		pid, err := strconv.Atoi(strings.TrimSuffix(line, "\n"))
		switch {
		case err != nil:
			m.missed(fmt.Errorf("%s: %w", file, err))
		case pid == 0:
			m.foreign++
		default:
			m.pids = append(m.pids, pid)
		}
	}
	return nil
}
