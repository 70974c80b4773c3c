package cgroup

import (
	"io/fs"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// node is a known cgroup: one path, in all hierarchies that have it.
type node struct {
	cgroup   string
	parent   *node     // nil for a root
	in       []nodeDir // one for each of Reader.dirs
	children []*node   // sorted by path; none for a pod
	pod      bool

	populated bool // it has processes of its own
	// Errors of reading its processes, or its children. It is a workload then:
	// its counters include all below it.
	procsError, listError string
	listAgain             bool          // its children are to be listed again
	due                   time.Duration // when to look again without a sign of change
	backoff               time.Duration // the interval until then

	workload *trackedWorkload // nil if it is none

	parentCounters *parentCounters // nil while it does not pay
}

// nodeDir is a cgroup in one hierarchy.
type nodeDir struct {
	inode uint64 // 0: it does not exist there, for the reason err
	links uint64 // when it was listed
	kept  cgroupDir
	err   error
	// subtree of a workload, itself first, and the paths of those below it.
	subtree []listed
	paths   []string
}

// newNode opens a cgroup in all hierarchies; nil if none has it.
func (c *Reader) newNode(cgroup string, above *node) *node {
	n := &node{cgroup: cgroup, parent: above, in: make([]nodeDir, len(c.dirs)), pod: snapshot.PodUID(cgroup) != "", listAgain: true}
	for i := range n.in {
		n.in[i].kept = noDir
	}
	if !c.openEverywhere(n) {
		return nil
	}
	if n.pod {
		c.track(n)
	}
	return n
}

// openEverywhere opens the cgroup in hierarchies that did not have it before, and
// reports whether any has it.
func (c *Reader) openEverywhere(n *node) (somewhere bool) {
	for i := range n.in {
		nd := &n.in[i]
		if nd.inode == 0 {
			c.openNode(n, i)
			if nd.inode != 0 && n.workload != nil {
				n.workload.idle = false // it has more values now
			}
		}
		somewhere = somewhere || nd.inode != 0
	}
	return somewhere
}

func (c *Reader) openNode(n *node, i int) {
	nd := &n.in[i]
	d, err := openDir(c.dirs[i] + n.cgroup)
	if err == nil {
		nd.inode, _, err = d.inode()
	}
	nd.err = err
	if err != nil {
		d.close()
		nd.inode = 0
		return
	}
	if n.workload != nil || n.pod || !c.fds.take() {
		d.close()
		return
	}
	nd.kept = d
}

// closeDirs closes the kept directories of a cgroup.
func (c *Reader) closeDirs(n *node) {
	for i := range n.in {
		if n.in[i].kept != noDir {
			n.in[i].kept.close()
			n.in[i].kept = noDir
			c.fds.left++
		}
	}
}

// open returns the cgroup's directory in a hierarchy; if mine, the caller
// closes it. A directory with another inode is not the known cgroup.
func (c *Reader) open(n *node, i int) (d cgroupDir, mine bool, err error) {
	nd := &n.in[i]
	switch {
	case nd.kept != noDir:
		return nd.kept, false, nil
	case nd.inode == 0:
		return noDir, false, nd.err
	}
	d, err = openDir(c.dirs[i] + n.cgroup)
	if err != nil {
		return noDir, false, err
	}
	if inode, _, err := d.inode(); err != nil || inode != nd.inode {
		d.close()
		return noDir, false, fs.ErrNotExist
	}
	return d, true, nil
}

// inode is that of the first hierarchy which has the cgroup.
func (n *node) inode() uint64 {
	for i := range n.in {
		if n.in[i].inode != 0 {
			return n.in[i].inode
		}
	}
	return 0
}

// forget closes all files of a cgroup and of those below it.
func (c *Reader) forget(n *node) {
	for _, b := range n.children {
		c.forget(b)
	}
	c.untrack(n)
	n.closeParentCounters()
	c.closeDirs(n)
}

func (c *Reader) alive(n *node, i int) bool {
	d, mine, err := c.open(n, i)
	if err != nil {
		return !isRemoved(err)
	}
	if mine {
		defer d.close()
	}
	return d.alive()
}
