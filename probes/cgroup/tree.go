package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/backoff"
	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
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
	// subtree of a workload, itself first, and the paths of those below it, as of heldAt,
	// unchanged since listedAt.
	subtree  []listed
	paths    []string
	heldAt   time.Duration
	listedAt time.Duration
}

// newNode opens a cgroup in all hierarchies; nil if none has it.
func (r *Reader) newNode(cgroup string, above *node) *node {
	n := &node{cgroup: cgroup, parent: above, in: make([]nodeDir, len(r.dirs)), pod: snapshot.PodUID(cgroup) != "", listAgain: true}
	for i := range n.in {
		n.in[i].kept = noDir
	}
	if !r.openEverywhere(n) {
		return nil
	}
	if n.pod {
		r.track(n)
	}
	return n
}

// openEverywhere opens the cgroup in hierarchies that did not have it before, and
// reports whether any has it.
func (r *Reader) openEverywhere(n *node) (somewhere bool) {
	for i := range n.in {
		nd := &n.in[i]
		if nd.inode == 0 {
			r.openNode(n, i)
			if nd.inode != 0 && n.workload != nil {
				n.workload.idle = false // it has more values now
			}
		}
		somewhere = somewhere || nd.inode != 0
	}
	return somewhere
}

func (r *Reader) openNode(n *node, i int) {
	nd := &n.in[i]
	d, err := r.path.openDir(r.dirs[i], n.cgroup)
	if err == nil {
		nd.inode, _, err = d.inode()
	}
	nd.err = err
	if err != nil {
		d.close()
		nd.inode = 0
		return
	}
	n.pod = n.pod && d.madeByHost()
	if n.workload != nil || n.pod || !r.fds.take() {
		d.close()
		return
	}
	nd.kept = d
}

// closeDirs closes the kept directories of a cgroup.
func (r *Reader) closeDirs(n *node) {
	for i := range n.in {
		if n.in[i].kept != noDir {
			n.in[i].kept.close()
			n.in[i].kept = noDir
			r.fds.left++
		}
	}
}

// open returns the cgroup's directory in a hierarchy; if mine, the caller
// closes it. A directory with another inode is not the known cgroup.
func (r *Reader) open(n *node, i int) (d cgroupDir, mine bool, err error) {
	nd := &n.in[i]
	switch {
	case nd.kept != noDir:
		return nd.kept, false, nil
	case nd.inode == 0:
		return noDir, false, nd.err
	}
	d, err = r.path.openDir(r.dirs[i], n.cgroup)
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
func (r *Reader) forget(n *node) {
	for _, b := range n.children {
		r.forget(b)
	}
	r.untrack(n)
	n.closeParentCounters()
	r.closeDirs(n)
}

func (r *Reader) alive(n *node, i int) bool {
	d, mine, err := r.open(n, i)
	if err != nil {
		return !isRemoved(err)
	}
	if mine {
		defer d.close()
	}
	return d.alive(&r.path)
}

// listed is a workload's cgroup or one below, in one hierarchy, with its number
// of links when its children were listed.
type listed struct {
	path  string
	links uint64
}

// subtree returns the directories of all cgroups below one, sorted. It lists again only
// if a number of links changed (0 for a removed cgroup): listing a directory of
// sixty files is expensive, and a pod's containers seldom change. One look serves a tick.
func (r *Reader) subtree(n *node, i int) []string {
	nd := &n.in[i]
	if r.subtreeHolds(nd) {
		return nd.paths
	}
	nd.subtree, nd.heldAt, nd.listedAt = r.appendSubtree(nil, r.dirs[i]+n.cgroup), r.now, r.now
	nd.paths = nd.paths[:0]
	for _, l := range nd.subtree[1:] {
		nd.paths = append(nd.paths, l.path)
	}
	slices.Sort(nd.paths)
	return nd.paths
}

// subtreeHolds reports whether the listed subtree is still current.
func (r *Reader) subtreeHolds(nd *nodeDir) bool {
	if nd.subtree == nil || nd.heldAt == r.now {
		return nd.subtree != nil
	}
	moved := func(l listed) bool { return r.path.links(l.path) != l.links || l.links < 2 }
	if slices.ContainsFunc(nd.subtree, moved) {
		return false
	}
	nd.heldAt = r.now
	return true
}

// maxBelow is how many cgroups below a workload are read: a container that may make cgroups
// may make any number, and reading them would take longer than a tick. Of the others nothing
// is counted.
const maxBelow = 1024

// appendSubtree appends a directory and all below it, as far as maxBelow goes. A directory
// that cannot be listed counts as empty.
func (r *Reader) appendSubtree(list []listed, dir string) []listed {
	if len(list) > maxBelow {
		return list
	}
	links := r.path.links(dir)
	list = append(list, listed{dir, links})
	if links == 2 {
		return list
	}
	names, _ := appendDirs(nil, dir)
	for _, name := range names {
		list = r.appendSubtree(list, dir+"/"+name)
	}
	return list
}

// recheck is how long changes without a sign may go unnoticed: that a cgroup
// got its first process, lost its last, or is another one of the same name.
// Signs are a changed number of links, and a file that is gone.
const recheck = 10 * time.Second

// refresh finds the cgroups that were added or removed below a cgroup other
// than a pod.
func (r *Reader) refresh(n *node) {
	due := r.now >= n.due
	if due {
		r.findProcesses(n)
	}
	// A cgroup with processes and no child seldom gets one.
	if due || n.listAgain || (len(n.children) > 0 || !n.populated) && r.linksChanged(n) {
		r.list(n)
	}
	for _, b := range n.children {
		if !b.pod {
			r.refresh(b)
		}
	}
	isWorkload := n.cgroup != "/" && (n.populated || n.procsError != "" || n.listError != "")
	switch {
	case isWorkload && n.workload == nil:
		r.track(n)
	case !isWorkload:
		r.untrack(n)
	}
}

// linksChanged reports whether the number of children changed in a hierarchy. It
// is the same if one was added and one removed; reading the removed one's files
// shows that.
func (r *Reader) linksChanged(n *node) bool {
	for i := range n.in[:r.walked] {
		nd := &n.in[i]
		if nd.inode == 0 {
			continue
		}
		if links, err := r.links(n, i); err != nil || links != nd.links || links < 2 {
			return true
		}
	}
	return false
}

func (r *Reader) links(n *node, i int) (uint64, error) {
	d, mine, err := r.open(n, i)
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
func (r *Reader) list(n *node) {
	n.listAgain, n.listError = false, ""
	r.openEverywhere(n)
	names := r.childNames[:0]
	for i := range n.in[:r.walked] {
		if n.in[i].inode == 0 {
			continue
		}
		links, err := r.links(n, i)
		n.in[i].links = links
		if err == nil && links != 2 { // most have no child, which shows without listing their files
			names, err = r.appendChildren(names, r.dirs[i], n.cgroup)
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
	r.childNames = names
	r.syncChildren(n, slices.Compact(names))
}

// appendChildren appends the names of a cgroup's children in one hierarchy. Names that are
// known take no memory: the cgroup of all pods is listed every few seconds.
func (r *Reader) appendChildren(names []string, dir, cgroup string) ([]string, error) {
	fd, err := r.path.open(anywhere, dir, cgroup)
	if err != nil {
		return names, err
	}
	defer closeFD(fd)
	if cap(r.buf) < minDirents {
		r.buf = make([]byte, minDirents)
	}
	for {
		buf := r.buf[:cap(r.buf)]
		n, err := unix.Getdents(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return names, err
		}
		for b := buf[:n]; len(b) > 0; {
			var name []byte
			var kind byte
			name, kind, b = parse.Dirent(b)
			switch {
			case kind == unix.DT_UNKNOWN: // some file systems do not tell
				return appendDirs(names, dir+cgroup)
			case kind == unix.DT_DIR && string(name) != "." && string(name) != "..":
				names = append(names, r.names.intern(name))
			}
		}
	}
}

// minDirents is a buffer for some entries of a directory.
const minDirents = 4096

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
func (r *Reader) syncChildren(n *node, names []string) {
	if r.sameChildren(n, names) {
		return
	}
	was := n.children
	n.children = make([]*node, 0, len(names))
	for _, name := range names {
		cgroup := path.Join(n.cgroup, name)
		for len(was) > 0 && was[0].cgroup < cgroup {
			r.forget(was[0])
			was = was[1:]
		}
		var b *node
		if len(was) > 0 && was[0].cgroup == cgroup && r.stillSame(was[0]) {
			b, was = was[0], was[1:]
		} else {
			b = r.newNode(cgroup, n)
		}
		if b != nil {
			n.children = append(n.children, b)
		}
	}
	for _, gone := range was {
		r.forget(gone)
	}
}

// sameChildren reports whether a cgroup has the children that are known, and no other.
func (r *Reader) sameChildren(n *node, names []string) bool {
	isNamed := func(b *node, name string) bool { return b.cgroup[strings.LastIndexByte(b.cgroup, '/')+1:] == name }
	return slices.EqualFunc(n.children, names, isNamed) && !slices.ContainsFunc(n.children, func(b *node) bool { return !r.stillSame(b) })
}

// stillSame reports whether a listed cgroup is the one known by its path. For a
// workload, reading its files shows it.
func (r *Reader) stillSame(n *node) bool {
	if n.workload == nil {
		for i := range n.in {
			if n.in[i].inode != 0 && !r.alive(n, i) {
				return false
			}
		}
	}
	return r.openEverywhere(n)
}

// findProcesses finds out whether a cgroup has processes of its own, in any hierarchy.
// One without is asked again soon, since a cgroup is created before its first
// process enters it, with exponential backoff.
func (r *Reader) findProcesses(n *node) {
	wasPopulated, wasWhy := n.populated, n.procsError
	n.populated, n.procsError = false, ""
	for i := range n.in[:r.walked] {
		if n.in[i].inode == 0 {
			continue
		}
		has, err := r.hasProcesses(n, i)
		if isOutOfResources(err) {
			n.populated, n.procsError = wasPopulated, wasWhy
			return
		}
		n.populated = n.populated || has
		if err != nil {
			n.procsError = cmp.Or(n.procsError, err.Error())
		}
	}
	n.backoff = backoff.Exponential{First: time.Second, Longest: recheck}.Next(n.backoff)
	if n.populated {
		n.backoff = recheck
	}
	n.due = r.now + n.backoff
}

// hasProcesses reports whether a cgroup has processes in a hierarchy. A
// threaded cgroup has threads: their process is counted at the root of the
// threaded subtree, and reading gives EOPNOTSUPP.
func (r *Reader) hasProcesses(n *node, i int) (has bool, err error) {
	d, mine, err := r.open(n, i)
	if err == nil {
		if mine {
			defer d.close()
		}
		r.buf, err = d.read(&r.path, "cgroup.procs", r.buf)
	}
	switch {
	case err == nil:
		return len(r.buf) > 0, nil
	case isRemoved(err), errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	}
	return false, err
}

// track makes a cgroup a workload. From then on reading its files shows whether
// it exists, and its directory is opened only when needed.
func (r *Reader) track(n *node) {
	r.closeDirs(n)
	n.workload = newTracked(r, n)
	r.tracked = append(r.tracked, n.workload)
	r.unsorted = true
}

func (r *Reader) untrack(n *node) {
	if n.workload == nil {
		return
	}
	n.workload.close()
	n.workload.removed = true
	n.workload = nil
	r.unsorted = true
}
