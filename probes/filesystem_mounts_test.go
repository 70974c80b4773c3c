package probes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tableOf is a made-up mount table of a machine whose kernel knows a few
// filesystems.
func tableOf(t *testing.T, lines string) mountTable {
	t.Helper()
	dir := t.TempDir()
	for path, content := range map[string]string{
		"1/mountinfo": strings.TrimLeft(lines, "\n"),
		"filesystems": "nodev\tproc\nnodev\ttmpfs\n\text4\n\txfs\n\tbtrfs\n\tsquashfs\n\tfuseblk\nnodev\tfuse\nnodev\toverlay\nnodev\tnfs4\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, path), []byte(content), 0o644))
	}
	require.NoError(t, os.Symlink("/", filepath.Join(dir, "1/root")))
	proc, err := procfs.NewFS(dir)
	require.NoError(t, err)
	return mountTable{Paths{Procfs: dir}, proc}
}

// chosen are the mountpoints that are watched by default.
func chosen(t *testing.T, lines string) []string {
	t.Helper()
	c, err := tableOf(t, lines).survey(FilesystemConfig{})
	require.NoError(t, err)
	assert.Empty(t, c.missing)
	return points(c.mounts)
}

func points(list []mount) []string {
	var out []string
	for _, m := range list {
		out = append(out, m.Point)
	}
	return out
}

const rootLine = "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"

func TestMountsDefault(t *testing.T) {
	assert.Equal(t, []string{"/", "/boot", "/data", "/ntfs", "/pool"}, chosen(t, rootLine+`
30 27 0:21 / /proc rw - proc proc rw
31 27 0:22 / /run rw - tmpfs tmpfs rw
32 27 8:1 / /boot rw - ext4 /dev/sda1 rw
33 27 8:16 / /data rw - xfs /dev/sdb rw
34 27 0:40 / /pool rw - btrfs /dev/sdc rw
35 27 8:32 / /ntfs rw - fuseblk.ntfs /dev/sdd rw
36 27 0:41 / /nfs rw - nfs4 server:/export rw
37 27 0:42 / /sshfs rw - fuse.sshfs me@there: rw
38 27 0:43 / /dead rw - fuse /dev/fuse rw
39 27 7:1 / /snap/core/1 ro - squashfs /dev/loop1 ro
`[1:]))
}

func TestMountsOncePerFilesystem(t *testing.T) {
	assert.Equal(t, []string{"/", "/data"}, chosen(t, rootLine+`
30 27 254:0 /var/lib/kubelet /kubelet rw - ext4 /dev/vda1 rw
31 27 8:16 /sub /a rw - xfs /dev/sdb rw
32 27 8:16 / /var/lib/kubelet/plugins/pv/globalmount rw - xfs /dev/sdb rw
33 27 8:16 / /data rw - xfs /dev/sdb rw
34 27 8:16 / /mnt/data rw - xfs /dev/sdb rw
`[1:]), "the root first, then all of it before a part, then the shortest path")

	assert.Equal(t, []string{"/"}, chosen(t, `
27 1 0:30 /@ / rw - btrfs /dev/sda2 rw,subvol=/@
28 27 0:30 /@home /home rw - btrfs /dev/sda2 rw,subvol=/@home
`[1:]), "subvolumes share their room")
}

func TestMountsSkipContainerRootfs(t *testing.T) {
	assert.Equal(t, []string{"/"}, chosen(t, rootLine+`
30 27 0:50 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/abc/rootfs rw - overlay overlay rw
31 27 253:7 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/def/rootfs rw - ext4 /dev/dm-7 rw
32 27 253:8 / /var/lib/docker/devicemapper/mnt/abc rw - xfs /dev/dm-8 rw
`[1:]))
	assert.Equal(t, []string{"/", "/var/lib/docker"}, chosen(t, rootLine+"30 27 253:9 / /var/lib/docker rw - xfs /dev/dm-9 rw\n"))
	assert.Equal(t, []string{"/"}, chosen(t, "27 1 0:50 / / rw - overlay overlay rw\n"), "the root, whatever it is on")
}

func TestMountsSkipCovered(t *testing.T) {
	assert.Equal(t, []string{"/", "/b"}, chosen(t, rootLine+`
30 27 8:1 / /a/x rw - ext4 /dev/sda1 rw
31 27 0:60 / /a rw - tmpfs tmpfs rw
32 27 8:2 / /b rw - ext4 /dev/sda2 rw
33 32 8:3 / /b rw - ext4 /dev/sda3 rw
34 32 8:4 / /b/under rw - ext4 /dev/sda4 rw
`[1:]), "/a/x is below a newer /a, the first /b and what is on it below a second one")
	c, err := tableOf(t, rootLine+"32 27 8:2 / /b rw - ext4 /dev/sda2 rw\n33 32 8:3 / /b rw - ext4 /dev/sda3 rw\n").survey(FilesystemConfig{Mounts: []string{"/b"}})
	require.NoError(t, err)
	require.Len(t, c.mounts, 1)
	assert.Equal(t, "/dev/sda3", c.mounts[0].Source)
	assert.Equal(t, []string{"/", "/ab"}, chosen(t, rootLine+"30 27 0:60 / /a rw - tmpfs tmpfs rw\n31 27 8:1 / /ab rw - ext4 /dev/sda1 rw\n"),
		"/a covers nothing of /ab")
	assert.Equal(t, []string{"/"}, chosen(t, "1 1 0:1 / / rw - tmpfs rootfs rw\n27 1 254:0 / / rw - ext4 /dev/vda1 rw\n"),
		"the kernel's first root is below the real one")
}

func TestMountsNamed(t *testing.T) {
	table := tableOf(t, rootLine+`
30 27 0:41 / /nfs rw - nfs4 server:/export rw
31 27 8:1 / /boot rw - ext4 /dev/sda1 rw
32 27 0:42 / /auto rw - autofs systemd-1 rw
33 27 0:43 / /used rw - autofs systemd-1 rw
34 33 0:44 / /used rw - nfs4 server:/used rw
`[1:])
	c, err := table.survey(FilesystemConfig{Mounts: []string{"/used", "/nfs", "/auto", "/nfs", "/var/lib"}})
	require.NoError(t, err)
	assert.Equal(t, []string{"/nfs", "/used"}, points(c.mounts))
	assert.Equal(t, "nfs4", c.mounts[1].Type)
	assert.Equal(t, map[string]string{
		"/auto": "not mounted now: automount mounts it on first access", "/var/lib": "not mounted",
	}, c.missing, "a directory of another filesystem would give that one's numbers, and asking an automount would mount it")
}

func TestMountsRootOfSelf(t *testing.T) {
	table := tableOf(t, rootLine+"30 27 8:1 / /host/boot rw - ext4 /dev/sda1 rw\n31 27 0:9 / /host rw - xfs /dev/sdb rw\n")
	dir := table.paths.Procfs
	own := func(lines string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "self"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "self/mountinfo"), []byte(lines), 0o644))
	}
	root, all, err := table.read()
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "1/root"), root)
	assert.Equal(t, []string{"/", "/host"}, points(all))

	require.NoError(t, os.Remove(filepath.Join(dir, "1/root")))
	own(rootLine)
	root, all, err = table.read()
	require.NoError(t, err)
	assert.Equal(t, "/", root)
	assert.Equal(t, []string{"/"}, points(all))

	own("99 98 0:50 / / rw - overlay overlay rw\n100 99 254:0 / /host rw - ext4 /dev/vda1 rw\n101 100 8:1 / /host/boot rw - ext4 /dev/sda1 rw\n102 99 0:1 / /hostile rw - tmpfs x rw\n")
	_, _, err = table.read()
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "paths.rootfs set to where the host's root is mounted")

	table.paths.Rootfs = "/host"
	root, all, err = table.read()
	require.NoError(t, err)
	assert.Equal(t, "/host", root)
	assert.Equal(t, []string{"/", "/boot"}, points(all), "as the host sees them")
	table.paths.Rootfs = "/"
	_, all, err = table.read()
	require.NoError(t, err)
	assert.Equal(t, []string{"/", "/host", "/host/boot", "/hostile"}, points(all))
}

func TestMountTableUnreadable(t *testing.T) {
	for name, lines := range map[string]string{"no separator": "27 1 254:0 / / rw ext4 /dev/vda rw\n", "no root": "30 27 8:1 / /boot rw - ext4 /dev/sda1 rw\n"} {
		_, err := tableOf(t, lines).survey(FilesystemConfig{})
		assert.Error(t, err, name)
	}
	table := tableOf(t, rootLine)
	require.NoError(t, os.Remove(filepath.Join(table.paths.Procfs, "filesystems")))
	_, err := table.survey(FilesystemConfig{})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.RemoveAll(filepath.Join(table.paths.Procfs, "1")))
	_, err = table.survey(FilesystemConfig{Mounts: []string{"/"}})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestUnescapeMount(t *testing.T) {
	for escaped, want := range map[string]string{
		"/mnt": "/mnt", `/a\040b`: "/a b", `/a\011\012\134b\043`: "/a\t\n\\b#", `/end\`: `/end\`, `/end\04`: `/end\04`,
		`/no\999`: `/no\999`, `/\303\274`: "/ü", `\134040`: `\040`, `/big\777`: `/big\777`, "": "",
	} {
		assert.Equal(t, want, unescapeMount(escaped))
	}
}

func FuzzUnescapeMount(f *testing.F) {
	f.Add("/a b\\c\td\n#")
	f.Add(`\040`)
	f.Fuzz(func(t *testing.T, path string) {
		escaped := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`, "#", `\043`).Replace(path)
		assert.Equal(t, path, unescapeMount(escaped), "what the kernel escaped")
		_ = unescapeMount(path) // anything at all does not panic
	})
}

// This machine's own table has a root for every user.
func TestMountTableOfThisMachine(t *testing.T) {
	proc, err := procfs.NewFS("/proc")
	require.NoError(t, err)
	c, err := mountTable{Paths{Procfs: "/proc"}, proc}.survey(FilesystemConfig{})
	require.NoError(t, err)
	require.NotEmpty(t, c.mounts)
	assert.Equal(t, "/", c.mounts[0].Point)
	u, err := statfs(c.root, c.mounts[0])
	require.NoError(t, err)
	assert.False(t, u.size.IsZero())
}
