package probes

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// kubeletPlaces has the locations of the kubelet's and its container runtime's
// files.
type kubeletPlaces struct {
	dir     string          // the kubelet's directory, as in mountpoints; empty: no kubelet
	numbers map[string]bool // numbers of the filesystems that hold one of the directories
	unknown bool            // one of them could not be examined
}

// use of a mount; p is nil until it is known.
func (p *kubeletPlaces) use(m mount) snapshot.FilesystemUse {
	switch {
	case p == nil:
		return ""
	case p.numbers[m.Number]:
		return snapshot.UseKubelet
	case p.dir != "" && strings.HasPrefix(m.Point, p.dir+"/"), isVolume(m.Point):
		return snapshot.UseVolume
	case p.unknown:
		return ""
	}
	return snapshot.UseNode
}

// isVolume tells whether a mountpoint has the form of a kubelet's, whichever its directory is:
// …/pods/UID/volumes/…, or …/plugins/kubernetes.io/…, where it mounts a volume first.
func isVolume(point string) bool {
	_, below, _ := strings.Cut(point, "/pods/")
	uid, place, _ := strings.Cut(below, "/")
	id, err := hex.DecodeString(strings.ReplaceAll(uid, "-", "")) // that of a static pod has no hyphens
	return err == nil && len(id) == 16 && strings.HasPrefix(place, "volumes/") || strings.Contains(point, "/plugins/kubernetes.io/")
}

// findKubelet searches the configured directories. Without a kubelet's
// directory there is no kubelet, even if other software runs containers.
func findKubelet(c selection, config FilesystemConfig) kubeletPlaces {
	p := kubeletPlaces{numbers: map[string]bool{}}
	if config.Kubelet == "" {
		return p
	}
	numbers := map[int]string{}
	for _, m := range c.all {
		numbers[m.ID] = m.Number
	}
	for i, dir := range append([]string{config.Kubelet}, config.Runtimes...) {
		path, id, err := locate(c.root, dir)
		number, mounted := numbers[id]
		switch {
		case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
			if i == 0 {
				return p
			}
			continue
		case err != nil || !mounted:
			p.unknown = true
			continue
		}
		p.numbers[number] = true
		if i == 0 {
			p.dir = path
		}
	}
	return p
}

// locate returns a directory below root with its symbolic links resolved inside
// root, and the mount it is on. It may hang if a filesystem on the way does.
func locate(root, dir string) (path string, mount int, err error) {
	fd, err := retryEINTR(func() (int, error) { return OpenBelow(root, dir) })
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	if mount, err = mountID(fd); err != nil {
		return "", 0, err
	}
	path, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if below, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/")+"/"); ok {
		path = "/" + below
	}
	return path, mount, err
}

// OpenBelow opens a path without access to its content (O_PATH). It resolves links
// as a process with that root does. Before kernel 5.6, or if openat2 is forbidden,
// it resolves them from the agent's root: a link that then leads elsewhere ends on a
// mount that is not the host's. It may hang if a filesystem on the way does.
func OpenBelow(root, dir string) (int, error) {
	base, err := unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(base) }() // nothing was written to it
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	fd, err := unix.Openat2(base, dir, &how)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return unix.Open(strings.TrimSuffix(root, "/")+dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	return fd, err
}
