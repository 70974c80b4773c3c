package probes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/probes/filesystemtest"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// kubeletSpace is a host with a kubelet on a filesystem of its own, images on
// another one, a volume of a pod, and a filesystem that neither uses.
type kubeletSpace struct {
	*mountSpace
	kubelet, images, volume, data string
}

func newKubeletSpace(t *testing.T) *kubeletSpace {
	t.Helper()
	s := &kubeletSpace{mountSpace: newMountSpace(t)}
	tmpfs := func(name string) string { return s.Mount("tmpfs", filepath.Base(name), name, "size=1m") }
	s.kubelet, s.images, s.data = tmpfs("kubelet"), tmpfs("images"), tmpfs("data")
	for _, dir := range []string{filepath.Join(s.kubelet, "pods/1/volumes/db"), filepath.Join(s.images, "docker")} {
		require.NoError(t, os.MkdirAll(s.Enter(dir), 0o755))
	}
	s.volume = tmpfs("kubelet/pods/1/volumes/db")
	return s
}

func (s *kubeletSpace) config(kubelet string, runtimes ...string) FilesystemConfig {
	return FilesystemConfig{
		Mounts: []string{s.kubelet, s.images, s.volume, s.data}, Every: 10 * time.Millisecond, Timeout: time.Second,
		Kubelet: kubelet, Runtimes: runtimes,
	}
}

// uses of the four, once each has one.
func (s *kubeletSpace) uses(h *Host) map[string]snapshot.FilesystemUse {
	s.Helper()
	uses := map[string]snapshot.FilesystemUse{}
	s.eventually(h, "it is known whose each is", func(list []snapshot.Filesystem) bool {
		for _, f := range list {
			uses[filepath.Base(f.Mountpoint)] = f.Use
		}
		return len(list) == 4 && uses["data"] != ""
	})
	return uses
}

func TestKubeletFilesystemsTold(t *testing.T) {
	s := newKubeletSpace(t)
	link := func(name, to string) string {
		path := filepath.Join(s.Dir, name)
		require.NoError(t, os.Symlink(to, path))
		return path
	}
	own := map[string]snapshot.FilesystemUse{"kubelet": snapshot.UseKubelet, "images": snapshot.UseNode, "db": snapshot.UseVolume, "data": snapshot.UseNode}
	all := map[string]snapshot.FilesystemUse{"kubelet": snapshot.UseKubelet, "images": snapshot.UseKubelet, "db": snapshot.UseVolume, "data": snapshot.UseNode}
	nobodys := map[string]snapshot.FilesystemUse{"kubelet": snapshot.UseNode, "images": snapshot.UseNode, "db": snapshot.UseNode, "data": snapshot.UseNode}
	h := s.host()
	for what, row := range map[string]struct {
		config FilesystemConfig
		want   map[string]snapshot.FilesystemUse
	}{
		"the kubelet's directory":              {s.config(s.kubelet), own},
		"a runtime's as well":                  {s.config(s.kubelet, "/none", filepath.Join(s.images, "docker")), all},
		"through links, as the host sees them": {s.config(link("link", s.kubelet), link("docker", filepath.Join(s.images, "docker"))), all},
		"through a link that leads above":      {s.config(link("up", "../../../../../.."+s.kubelet)), own},
		"without a kubelet there is none":      {s.config("/none", s.images), nobodys},
		"below a file there is none":           {s.config("/proc/version/kubelet", s.images), nobodys},
		"where none is named there is none":    {s.config("", s.images), nobodys},
	} {
		h.FollowFilesystems(row.config)
		assert.Equal(t, row.want, s.uses(h), what)
	}
}

// The volume of a pod is none of the node's, also where the kubelet's directory is not the
// configured one.
func TestKubeletVolumeByItsForm(t *testing.T) {
	const uid = "0a1b2c3d-0a1b-4c3d-8e9f-0a1b2c3d4e5f"
	for point, want := range map[string]snapshot.FilesystemUse{
		"/var/lib/k0s/kubelet/pods/" + uid + "/volumes/kubernetes.io~csi/pvc-1/mount":                      snapshot.UseVolume,
		"/var/lib/k0s/kubelet/pods/" + strings.ReplaceAll(uid, "-", "") + "/volumes/kubernetes.io~csi/p/m": snapshot.UseVolume, // of a static pod
		"/var/lib/k0s/kubelet/plugins/kubernetes.io/local-volume/mounts/pv":                                snapshot.UseVolume,
		"/srv/pods/" + uid + "/data": snapshot.UseNode,
		"/srv/pods/db/volumes/a":     snapshot.UseNode,
		"/var/lib/k0s":               snapshot.UseNode,
		"/":                          snapshot.UseNode,
	} {
		assert.Equal(t, want, (&kubeletPlaces{}).use(mount{Point: point, Number: "8:1"}), point)
	}
	unknown := &kubeletPlaces{unknown: true}
	assert.Equal(t, snapshot.UseVolume, unknown.use(mount{Point: "/k/pods/" + uid + "/volumes/a"}))
}

func TestKubeletFilesystemMountedTwice(t *testing.T) {
	s := newKubeletSpace(t)
	bound := filepath.Join(s.Dir, "bound")
	s.Bind(filepath.Join(s.kubelet, "pods"), bound)
	h := s.host()
	c := s.config(s.kubelet)
	c.Mounts[3] = bound
	h.FollowFilesystems(c)
	list := s.eventually(h, "it is known", func(list []snapshot.Filesystem) bool { return at(list, bound).Use != "" })
	assert.Equal(t, snapshot.UseKubelet, at(list, bound).Use)
}

func TestKubeletUnknownUseUnknown(t *testing.T) {
	s := newKubeletSpace(t)
	loop := filepath.Join(s.Dir, "loop")
	require.NoError(t, os.Symlink(loop, loop))
	root, all, err := mountTable{Paths{Procfs: s.Proc}, s.host().proc}.read()
	require.NoError(t, err)
	found := func(kubelet string, runtimes ...string) []snapshot.FilesystemUse {
		p := findKubelet(selection{root: root, all: all}, s.config(kubelet, runtimes...))
		var uses []snapshot.FilesystemUse
		for _, point := range []string{s.kubelet, s.images, s.volume, s.data} {
			for _, m := range all {
				if m.Point == point {
					uses = append(uses, p.use(m))
				}
			}
		}
		return uses
	}
	assert.Equal(t, []snapshot.FilesystemUse{"", snapshot.UseKubelet, "", ""}, found(loop, s.images))
	assert.Equal(t, []snapshot.FilesystemUse{snapshot.UseKubelet, "", snapshot.UseVolume, ""}, found(s.kubelet, loop))
	all = all[:0:0] // a table that has not what is mounted
	all = append(all, mount{ID: -1, Number: "0:0", Point: s.data})
	assert.Equal(t, []snapshot.FilesystemUse{""}, found(s.kubelet))
}

// Searching a directory on a filesystem that hangs, hangs.
func TestKubeletSearchHangs(t *testing.T) {
	s := newKubeletSpace(t)
	h := s.host()
	hang, looks := make(chan struct{}), make(chan int, 1000)
	h.filesystems.find = func(c selection, config FilesystemConfig) kubeletPlaces {
		looks <- 1
		<-hang
		return findKubelet(c, config)
	}
	h.FollowFilesystems(s.config(s.kubelet))
	list := s.eventually(h, "the mounts answer", answered(s.data))
	assert.Empty(t, at(list, s.data).Use)
	took := s.longestRead(h, 200*time.Millisecond)
	assert.Less(t, took, 500*time.Millisecond)
	assert.Len(t, looks, 1, "there is never a second look")
	close(hang)
	s.eventually(h, "it is known", func(list []snapshot.Filesystem) bool { return at(list, s.kubelet).Use == snapshot.UseKubelet })
	h.FollowFilesystems(s.config(""))
	list, err := filesystemsOf(t, h)
	require.NoError(t, err)
	assert.Empty(t, at(list, s.kubelet).Use, "by another configuration its use may differ")
	s.eventually(h, "no kubelet uses it", func(list []snapshot.Filesystem) bool { return at(list, s.kubelet).Use == snapshot.UseNode })
}

func TestKubeletSearchOfOldConfig(t *testing.T) {
	hang := make(chan struct{})
	f := &filesystems{out: map[*watchedMount]bool{}}
	f.survey = func(FilesystemConfig) (selection, error) { return selection{}, nil }
	f.find = func(selection, FilesystemConfig) kubeletPlaces {
		<-hang
		return kubeletPlaces{}
	}
	c := FilesystemConfig{Every: time.Hour, Timeout: time.Second}
	f.follow(c)
	start := time.Now()
	_, err := f.read(start)
	require.NoError(t, err)
	deadline.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.finding
	}, 10*time.Second, time.Millisecond)
	c.Kubelet = "/other"
	f.follow(c)
	close(hang)
	f.running.Wait()
	assert.Nil(t, f.places)
	_, err = f.read(start)
	require.NoError(t, err)
	f.running.Wait()
	assert.NotNil(t, f.places)
	f.close()
}

// By default the usual directory is used, which this machine does not have.
func TestKubeletNoneRootIsNode(t *testing.T) {
	if _, err := os.Stat(DefaultFilesystemConfig().Kubelet); err == nil {
		t.Skip("this machine has a kubelet's directory")
	}
	h, err := NewHost(Paths{Procfs: "/proc", Sysfs: "/sys"}, nil)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	h.FollowFilesystems(DefaultFilesystemConfig())
	s := mountSpace{&filesystemtest.Space{TB: t}}
	list := s.eventually(h, "the root is the node's", func(list []snapshot.Filesystem) bool { return at(list, "/").Use != "" })
	assert.Equal(t, snapshot.UseNode, at(list, "/").Use)
}
