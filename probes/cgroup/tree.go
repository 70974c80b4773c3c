package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// recheckCgroup is how long changes without a sign may go unnoticed: that a cgroup
// got its first process, lost its last, or is another one of the same name.
// Signs are a changed number of links, and a file that is gone.
const recheckCgroup = 10 * time.Second

// refresh finds the cgroups that were added or removed below a cgroup other
// than a pod.
func (c *Reader) refresh(n *node) {
	due := c.now >= n.due
	if due {
		c.findProcesses(n)
	}
	// A cgroup with processes and no child seldom gets one.
	if due || n.listAgain || (len(n.children) > 0 || !n.populated) && c.linksChanged(n) {
		c.list(n)
	}
	for _, b := range n.children {
		if !b.pod {
			c.refresh(b)
		}
	}
	isWorkload := n.cgroup != "/" && (n.populated || n.procsError != "" || n.listError != "")
	switch {
	case isWorkload && n.workload == nil:
		c.track(n)
	case !isWorkload:
		c.untrack(n)
	}
}

// linksChanged reports whether the number of children changed in a hierarchy. It
// is the same if one was added and one removed; reading the removed one's files
// shows that.
func (c *Reader) linksChanged(n *node) bool {
	for i := range n.in[:c.walked] {
		nd := &n.in[i]
		if nd.inode == 0 {
			continue
		}
		if links, err := c.links(n, i); err != nil || links != nd.links || links < 2 {
			return true
		}
	}
	return false
}

func (c *Reader) links(n *node, i int) (uint64, error) {
	d, mine, err := c.open(n, i)
	if err != nil {
		return 0, err
	}
	if mine {
		defer d.close()
	}
	_, links, err := d.inode()
	return links, err
}

// list reads the names of a cgroup's children. The hierarchies of v1 are merged
// into one tree, by path.
func (c *Reader) list(n *node) {
	n.listAgain, n.listError = false, ""
	c.openEverywhere(n)
	var names []string
	for i := range n.in[:c.walked] {
		if n.in[i].inode == 0 {
			continue
		}
		links, err := c.links(n, i)
		n.in[i].links = links
		if err == nil && links != 2 { // most have no child, which shows without listing their files
			names, err = appendDirs(names, c.dirs[i]+n.cgroup)
		}
		if isOutOfResources(err) {
			n.listAgain = true
			return
		}
		if err != nil && !isRemoved(err) {
			n.listError = fmt.Sprintf("list child cgroups: %v", err)
		}
	}
	slices.Sort(names)
	c.syncChildren(n, slices.Compact(names))
}

func appendDirs(names []string, dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// syncChildren keeps the known children that still exist, and adds the new ones.
func (c *Reader) syncChildren(n *node, names []string) {
	was := n.children
	n.children = make([]*node, 0, len(names))
	for _, name := range names {
		cgroup := path.Join(n.cgroup, name)
		for len(was) > 0 && was[0].cgroup < cgroup {
			c.forget(was[0])
			was = was[1:]
		}
		var b *node
		if len(was) > 0 && was[0].cgroup == cgroup && c.stillSame(was[0]) {
			b, was = was[0], was[1:]
		} else {
			b = c.newNode(cgroup, n)
		}
		if b != nil {
			n.children = append(n.children, b)
		}
	}
	for _, gone := range was {
		c.forget(gone)
	}
}

// stillSame reports whether a listed cgroup is the one known by its path. For a
// workload, reading its files shows it.
func (c *Reader) stillSame(n *node) bool {
	if n.workload == nil {
		for i := range n.in {
			if n.in[i].inode != 0 && !c.alive(n, i) {
				return false
			}
		}
	}
	return c.openEverywhere(n)
}

// findProcesses finds out whether a cgroup has processes of its own, in any hierarchy.
// One without is asked again soon, since a cgroup is created before its first
// process enters it, with exponential backoff.
func (c *Reader) findProcesses(n *node) {
	wasPopulated, wasWhy := n.populated, n.procsError
	n.populated, n.procsError = false, ""
	for i := range n.in[:c.walked] {
		if n.in[i].inode == 0 {
			continue
		}
		has, err := c.hasProcesses(n, i)
		if isOutOfResources(err) {
			n.populated, n.procsError = wasPopulated, wasWhy
			return
		}
		n.populated = n.populated || has
		if err != nil {
			n.procsError = cmp.Or(n.procsError, err.Error())
		}
	}
	n.backoff = min(recheckCgroup, max(time.Second, 2*n.backoff))
	if n.populated {
		n.backoff = recheckCgroup
	}
	n.due = c.now + n.backoff
}

// hasProcesses reports whether a cgroup has processes in a hierarchy. A
// threaded cgroup has threads: their process is counted at the root of the
// threaded subtree, and reading gives EOPNOTSUPP.
func (c *Reader) hasProcesses(n *node, i int) (has bool, err error) {
	d, mine, err := c.open(n, i)
	if err == nil {
		if mine {
			defer d.close()
		}
		c.buf, err = d.read("cgroup.procs", c.buf)
	}
	switch {
	case err == nil:
		return len(c.buf) > 0, nil
	case isRemoved(err), errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	}
	return false, err
}

// track makes a cgroup a workload. From then on reading its files shows whether
// it exists, and its directory is opened only when needed.
func (c *Reader) track(n *node) {
	c.closeDirs(n)
	n.workload = newTracked(c, n)
	c.tracked = append(c.tracked, n.workload)
	c.unsorted = true
}

func (c *Reader) untrack(n *node) {
	if n.workload == nil {
		return
	}
	n.workload.close()
	n.workload.removed = true
	n.workload = nil
	c.unsorted = true
}
