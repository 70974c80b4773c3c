package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// tree is a made-up root.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return root
}

func names(a *txtar.Archive) (names []string) {
	for _, f := range a.Files {
		names = append(names, f.Name)
	}
	return names
}

func TestRecordUnchangedOnce(t *testing.T) {
	root := tree(t, map[string]string{"proc/stat": "0\n", "proc/meminfo": "same\n", "proc/unasked": "x\n"})
	r := recorder{root: root, load: "true", note: "all at rest", samples: 3}
	var out bytes.Buffer
	require.NoError(t, r.record(&out))
	a := txtar.Parse(out.Bytes())
	assert.Equal(t, []string{"0/monotonic", "0/proc/meminfo", "0/proc/stat", "1/monotonic", "2/monotonic"}, names(a))
	assert.Equal(t, "same\n", string(a.Files[1].Data))
	var u unix.Utsname
	require.NoError(t, unix.Uname(&u))
	assert.Contains(t, string(a.Comment), "Recorded on Linux "+unix.ByteSliceToString(u.Release[:]))
	assert.Contains(t, string(a.Comment), `go run ./probes/recordfixture -samples 3 -every 0s -load "true" -note "all at rest"`)
}

func TestRecordChangedAgain(t *testing.T) {
	root := tree(t, map[string]string{"proc/stat": "0\n"})
	stop, err := start(t.Context(), "while :; do date +%s%N >"+root+"/proc/stat; sleep 0.01; done")
	require.NoError(t, err)
	deadline.Eventually(t, func() bool {
		b, err := os.ReadFile(filepath.Join(root, "proc/stat"))
		return err == nil && len(b) > 2
	}, 30*time.Second, time.Millisecond, "the load runs")
	var a *txtar.Archive
	deadline.Eventually(t, func() bool {
		var out bytes.Buffer
		r := recorder{root: root, samples: 2, every: 100 * time.Millisecond}
		require.NoError(t, r.record(&out))
		a = txtar.Parse(out.Bytes())
		return len(a.Files) == 4
	}, 30*time.Second, time.Millisecond)
	assert.Equal(t, []string{"0/monotonic", "0/proc/stat", "1/monotonic", "1/proc/stat"}, names(a))
	first, err := strconv.ParseUint(strings.TrimSpace(string(a.Files[0].Data)), 10, 64)
	require.NoError(t, err)
	second, err := strconv.ParseUint(strings.TrimSpace(string(a.Files[2].Data)), 10, 64)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, second-first, uint64(90*time.Millisecond))
	require.NoError(t, stop())
	deadline.Eventually(t, func() bool { return stop() != nil }, 30*time.Second, time.Millisecond, "the whole group is gone")
}

func TestRecordAnonymous(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/sys/kernel/random/boot_id": "12345678-9abc-4def-8123-456789abcdef\n",
		"sys/class/net/eth0/ifindex":     "258\n", "sys/class/net/eth0/address": "52:54:00:12:34:56\n",
		"sys/class/net/lo/ifindex": "1\n", "sys/class/net/lo/address": "00:00:00:00:00:00\n",
		"sys/block/sda/device/wwid": "naa.5000c500a1b2c3d4\n", "sys/block/sdb/device/wwid": "naa.5000c500a1b2c3d4\n",
		"sys/block/sdc/device/wwid": "naa.5000c500a1b2c3d5\n",
	})
	require.NoError(t, os.Symlink("../../0000:00:03.0", filepath.Join(root, "sys/class/net/eth0/device")))
	var out bytes.Buffer
	require.NoError(t, (recorder{root: root, samples: 1}).record(&out))
	assert.NotContains(t, out.String(), "52:54")
	assert.NotContains(t, out.String(), "9abc")
	assert.NotContains(t, out.String(), "5000c5")
	of := map[string]string{}
	for _, f := range txtar.Parse(out.Bytes()).Files {
		of[f.Name] = string(f.Data)
	}
	sda := of["0/sys/block/sda/device/wwid"]
	assert.Regexp(t, `^naa\.[0-9a-f]{16}\n$`, sda)
	assert.Equal(t, sda, of["0/sys/block/sdb/device/wwid"], "two paths to one medium")
	assert.NotEqual(t, sda, of["0/sys/block/sdc/device/wwid"])
	assert.Contains(t, out.String(), "-- 0/sys/class/net/eth0/address --\n02:00:00:00:01:02\n")
	assert.Contains(t, out.String(), "-- 0/sys/class/net/lo/address --\n00:00:00:00:00:00\n")
	assert.Contains(t, out.String(), "-- 0/sys/class/net/eth0/device --\n../../0000:00:03.0\n")
}

func TestRecordUnreadableFile(t *testing.T) {
	root := tree(t, map[string]string{"sys/class/net/lo/ifindex": "1\n"})
	require.NoError(t, os.Mkdir(filepath.Join(root, "sys/class/net/lo/speed"), 0o755))
	var out bytes.Buffer
	require.NoError(t, (recorder{root: root, samples: 2}).record(&out))
	a := txtar.Parse(out.Bytes())
	assert.Equal(t, []string{"0/monotonic", "0/sys/class/net/lo/ifindex", "0/unreadable", "1/monotonic"}, names(a))
	assert.Equal(t, "sys/class/net/lo/speed: is a directory\n", string(a.Files[2].Data))
}

// Recording an extracted recording gives the same archive.
func TestRecordOfRecording(t *testing.T) {
	a, err := txtar.ParseFile("../testdata/machines/vm-linux-6.18-direct-io.txtar")
	require.NoError(t, err)
	files := map[string]string{}
	for _, f := range a.Files {
		if path, ok := strings.CutPrefix(f.Name, "0/"); ok {
			files[path] = string(f.Data)
		}
	}
	var out bytes.Buffer
	require.NoError(t, (recorder{root: tree(t, files), samples: 1}).record(&out))
	again := txtar.Parse(out.Bytes())
	require.Len(t, again.Files, len(files)+1)
	for _, f := range again.Files[1:] {
		assert.Equal(t, files[strings.TrimPrefix(f.Name, "0/")], string(f.Data), f.Name)
	}
}

func TestRecordMissingMachine(t *testing.T) {
	var out bytes.Buffer
	require.ErrorContains(t, (recorder{root: t.TempDir(), samples: 1}).record(&out), "nothing to record")
	assert.Empty(t, out.String())
}
