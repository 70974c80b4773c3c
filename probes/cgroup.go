package probes

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Cgroups reads workloads from the host's cgroup hierarchies. It belongs to
// one goroutine.
type Cgroups struct {
	// dirs are the hierarchies' directories, without repetition; the first
	// walked of them are looked through for workloads.
	dirs   []string
	walked int
	// at tells in which of dirs a controller of v1, or unified, is.
	at    map[string]int
	roots []string
	buf   []byte // of the file that is being read
}

// Flavour is "v2", "v1", or "hybrid": v1 with a unified hierarchy beside it.
func (c *Cgroups) Flavour() string {
	_, v2 := c.at[unified]
	switch {
	case !v2:
		return "v1"
	case len(c.at) > 1:
		return "hybrid"
	}
	return "v2"
}

// Read returns the workloads that are there now, sorted by Cgroup. One that is
// removed meanwhile is not among them; what cannot be read of one is absent,
// with the reason. The error says that there is no cgroup file system at all.
//
// Absent has the JSON names, and these groups: memory (all of it), io,
// pressure, and processes (whose cgroup could not be looked into).
func (c *Cgroups) Read() ([]Workload, error) {
	places, err := c.discover()
	if err != nil {
		return nil, err
	}
	var workloads []Workload
	for _, p := range places {
		if w, ok := c.readWorkload(p); ok {
			workloads = append(workloads, w)
		}
	}
	slices.SortFunc(workloads, func(a, b Workload) int { return strings.Compare(a.Cgroup, b.Cgroup) })
	return workloads, nil
}

// reading is one workload while it is read.
type reading struct {
	*Cgroups
	w Workload
	// open has a directory, or the error instead, for each of Cgroups.dirs.
	open []cgroupDir
	errs []error
}

// readWorkload returns false for a cgroup that is not there any more.
func (c *Cgroups) readWorkload(p place) (Workload, bool) {
	r := &reading{Cgroups: c, w: newWorkload(p.cgroup)}
	for _, dir := range c.dirs {
		d, err := openDir(dir + p.cgroup)
		if err != nil {
			d = noDir
		}
		defer d.close()
		r.open, r.errs = append(r.open, d), append(r.errs, err)
	}
	i := slices.IndexFunc(r.open, func(d cgroupDir) bool { return d != noDir })
	if i < 0 {
		return r.w, false
	}
	if p.why != "" {
		r.w.Absent.Because("processes", p.why)
	}
	var err error
	if r.w.Inode, err = r.open[i].inode(); err != nil {
		return r.w, false
	}
	r.readMemory()
	r.readCPU()
	r.readIO()
	r.readPressure()
	return r.w, r.open[i].alive()
}

// readMemory and the two after it take the controller from where it is
// mounted: each one of v1 hides that of v2.
func (r *reading) readMemory() {
	if _, v1 := r.at["memory"]; v1 {
		r.readMemoryV1()
		return
	}
	r.readMemoryV2()
}

func (r *reading) readCPU() {
	_, cpu := r.at["cpu"]
	_, cpuacct := r.at["cpuacct"]
	if cpu || cpuacct {
		r.readCPUV1()
		return
	}
	r.readCPUV2()
}

func (r *reading) readIO() {
	if _, v1 := r.at["blkio"]; v1 {
		r.readIOV1()
		return
	}
	r.readIOV2()
}

// in returns the cgroup's directory in a hierarchy; without one the name of
// what would have been measured there is absent.
func (r *reading) in(hierarchy, name string) (cgroupDir, bool) {
	i, mounted := r.at[hierarchy]
	switch {
	case !mounted:
		r.w.Absent.Because(name, fmt.Sprintf("no %s hierarchy is mounted", hierarchy))
	case errors.Is(r.errs[i], fs.ErrNotExist):
		r.w.Absent.Because(name, fmt.Sprintf("no cgroup of this path in the %s hierarchy", hierarchy))
	case r.errs[i] != nil:
		r.w.Absent.Because(name, fmt.Sprintf("the %s hierarchy: %v", hierarchy, r.errs[i]))
	default:
		return r.open[i], true
	}
	return noDir, false
}

// path is the cgroup's directory in a hierarchy that is mounted.
func (r *reading) path(hierarchy string) string {
	return r.dirs[r.at[hierarchy]] + r.w.Cgroup
}

func (r *reading) read(d cgroupDir, file string) ([]byte, error) {
	var err error
	r.buf, err = d.read(file, r.buf)
	return r.buf, err
}

// number reads a file that is one number.
func (r *reading) number(d cgroupDir, file string) (uint64, error) {
	b, err := r.read(d, file)
	if err != nil {
		return 0, err
	}
	n, err := parseUint(trimNewline(b))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, oddLine(b, err))
	}
	return n, nil
}

func trimNewline(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		return b[:n-1]
	}
	return b
}

// keyed reads values of a flat-keyed file, in the order of keys. A key that is
// not there is absent; the error, of the file or of a line, may say why.
func (r *reading) keyed(d cgroupDir, file string, keys ...string) ([]Opt[uint64], error) {
	values := make([]Opt[uint64], len(keys))
	b, err := r.read(d, file)
	if err != nil {
		return values, err
	}
	err = parseKeyed(b, func(key []byte, value uint64) {
		for i, k := range keys {
			if string(key) == k {
				values[i] = Some(value)
			}
		}
	})
	if err != nil {
		return values, fmt.Errorf("%s: %w", file, err)
	}
	return values, nil
}

// take keeps the value of a key under a measurement's name, or the reason why
// there is none.
func (r *reading) take(to *Opt[uint64], name string, value Opt[uint64], what string, err error) {
	*to = value
	if value.IsZero() {
		r.w.Absent.Because(name, cmp.Or(err, fmt.Errorf("no %s", what)).Error())
	}
}

// takeNumber is take for what is a whole file.
func (r *reading) takeNumber(to *Opt[uint64], name string, d cgroupDir, file string) {
	n, err := r.number(d, file)
	r.take(to, name, someIf(n, err), file, err)
}

func someIf(n uint64, err error) Opt[uint64] {
	if err != nil {
		return Opt[uint64]{}
	}
	return Some(n)
}

// sum adds counters. A sum that does not fit is absent, not wrapped.
func sum(values ...Opt[uint64]) (Opt[uint64], error) {
	var total uint64
	for _, o := range values {
		v, ok := o.Get()
		if !ok {
			return o, nil
		}
		if total+v < total {
			return Opt[uint64]{}, errTooLarge
		}
		total += v
	}
	return Some(total), nil
}
