package probes

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// place is a cgroup that is looked at as one workload.
type place struct {
	cgroup string
	// why its processes or the cgroups below it could not be looked at. It is
	// a workload then: its counters have all that is below it.
	why string
}

// discover finds the workloads. Hierarchies of v1 are walked as one tree, by
// path; a cgroup needs processes in one of them only.
func (c *Cgroups) discover() ([]place, error) {
	tops, err := c.mounted()
	if err != nil {
		return nil, err
	}
	var found []place
	for _, root := range c.roots {
		if root == "/" {
			c.descend(root, tops, &found)
			continue
		}
		c.visit(root, tops, &found)
	}
	return found, nil
}

// mounted returns the hierarchies that are still there. An unmounted one looks
// like an empty directory; all of them empty must not look like an idle host.
func (c *Cgroups) mounted() ([]string, error) {
	var tops []string
	var first error
	for _, dir := range c.dirs[:c.walked] {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
			first = firstOf(first, err)
			continue
		}
		tops = append(tops, dir)
	}
	if len(tops) == 0 {
		return nil, fmt.Errorf("read cgroups: no cgroup file system: %w", first)
	}
	return tops, nil
}

// visit decides on one cgroup, which may be there in some of the hierarchies.
func (c *Cgroups) visit(cgroup string, tops []string, found *[]place) {
	if podUID(cgroup) != "" {
		*found = append(*found, place{cgroup: cgroup})
		return // its containers are part of it
	}
	own := place{cgroup: cgroup}
	populated := false
	for _, top := range tops {
		has, why := c.hasProcesses(filepath.Join(top, cgroup))
		populated = populated || has
		own.why = cmp.Or(own.why, why)
	}
	own.why = cmp.Or(own.why, c.descend(cgroup, tops, found))
	if populated || own.why != "" {
		*found = append(*found, own)
	}
}

// descend visits what is below a cgroup and says why it could not, if so.
func (c *Cgroups) descend(cgroup string, tops []string, found *[]place) (why string) {
	var names []string
	in := map[string][]string{}
	for _, top := range tops {
		below, err := children(filepath.Join(top, cgroup))
		if err != nil && !isGone(err) {
			why = fmt.Sprintf("the cgroups below: %v", err)
		}
		for _, name := range below {
			if in[name] == nil {
				names = append(names, name)
			}
			in[name] = append(in[name], top)
		}
	}
	for _, name := range names {
		c.visit(path.Join(cgroup, name), in[name], found)
	}
	return why
}

// hasProcesses says whether a cgroup has processes of its own, or why that
// cannot be known. A threaded cgroup has threads; their process is counted
// where its threads are rooted, and asking gives EOPNOTSUPP.
func (c *Cgroups) hasProcesses(dir string) (has bool, why string) {
	d, err := openDir(dir)
	if err == nil {
		defer d.close()
		c.buf, err = d.read("cgroup.procs", c.buf)
	}
	switch {
	case err == nil:
		return len(c.buf) > 0, ""
	case isGone(err), errors.Is(err, unix.EOPNOTSUPP):
		return false, ""
	}
	return false, err.Error()
}
