package vm_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

// machine is what of a machine is recorded for the tests of probes, which play
// the archives in probes/testdata/machines.
type machine struct {
	name    string // of the archive
	load    string // what runs, in words, for the header
	cgroups string // which ones, see recordfixture
	want    string // a file that is in it
	hide    []string
}

// recordings is where archives go that are to be kept, and empty in a test of
// whether they can be made: then three samples do.
func recordings() (dir string, samples int) {
	if dir := os.Getenv("PLIMSOLL_RECORDINGS"); dir != "" {
		return dir, 61
	}
	return "", 3
}

// skipUnrecorded leaves a recording of a large machine to those who want it.
func skipUnrecorded(t *testing.T) {
	t.Helper()
	if dir, _ := recordings(); dir == "" && !long() {
		t.Skip("whether an emulated machine of this kind can be recorded: make e2e")
	}
}

// record records the machine a second apart; meanwhile is called halfway.
func (n *node) record(m machine, meanwhile func()) *txtar.Archive {
	n.t.Helper()
	dir, samples := recordings()
	if dir == "" {
		dir = n.t.TempDir()
		if meanwhile != nil {
			samples = 8 // for the half that is left to show what was done
		}
	}
	file := filepath.Join(dir, m.name+".txtar.gz")
	n.run("rm -f /root/recording.gz /root/recorded; systemd-run -q --unit=recorder -p OOMScoreAdjust=-999 -p StandardOutput=file:/root/recording.gz" +
		fmt.Sprintf(" -p 'ExecStopPost=/bin/sh -c \"echo $SERVICE_RESULT >/root/recorded\"' /root/recordfixture -samples %d -cgroups %s -note %s",
			samples, m.cgroups, shellQuoted(m.load)))
	n.until(time.Minute, "the recording is halfway", halfway(time.Duration(samples)*time.Second/2))
	if meanwhile != nil {
		meanwhile()
	}
	n.until(time.Duration(samples)*time.Second+time.Minute, "the recording is made", func() bool {
		_, err := n.Run(n.t.Context(), "test -s /root/recorded")
		return err == nil
	})
	require.Equal(n.t, "success\n", n.run("cat /root/recorded"))
	require.NoError(n.t, n.Pull(context.WithoutCancel(n.t.Context()), "/root/recording.gz", file))
	a := readArchive(n.t, file)
	checkArchive(n.t, a, m, samples)
	return a
}

// halfway holds once d has gone by.
func halfway(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().After(end) }
}

func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func readArchive(t *testing.T, file string) *txtar.Archive {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	packed, err := gzip.NewReader(f)
	require.NoError(t, err)
	text, err := io.ReadAll(packed)
	require.NoError(t, err)
	info, err := f.Stat()
	require.NoError(t, err)
	t.Logf("%s: %d KiB, %d unpacked", filepath.Base(file), info.Size()>>10, len(text)>>10)
	assert.Less(t, info.Size(), int64(1<<20), "an archive stays below 1 MiB")
	return txtar.Parse(text)
}

// checkArchive holds an archive against what was wanted of it: all samples, a
// second apart, and nothing that names this machine.
func checkArchive(t *testing.T, a *txtar.Archive, m machine, samples int) {
	t.Helper()
	assert.Contains(t, string(a.Comment), m.load)
	var at []time.Duration
	found := false
	for _, f := range a.Files {
		if strings.HasSuffix(f.Name, "/monotonic") {
			ns, err := strconv.ParseInt(strings.TrimSpace(string(f.Data)), 10, 64)
			require.NoError(t, err)
			at = append(at, time.Duration(ns))
		}
		found = found || strings.HasPrefix(f.Name, "0/") && strings.HasSuffix(f.Name, m.want)
		for _, h := range m.hide {
			assert.NotContains(t, string(f.Data), h, f.Name)
		}
	}
	assert.True(t, found, "no %s in it", m.want)
	require.Len(t, at, samples)
	took := (at[len(at)-1] - at[0]).Seconds()
	assert.Greater(t, took, float64(samples-1)-0.5, "samples are a second apart")
	if dir, _ := recordings(); dir != "" {
		assert.Less(t, took, float64(samples+5), "samples are a second apart: is this machine busy?")
	}
}

// work starts the steady load in the machine, as a unit of its own: what it
// says it has done goes to a file.
func (n *node) work(unit, properties, flags string) {
	n.t.Helper()
	n.run(fmt.Sprintf("rm -f %[2]s; systemd-run -q --unit=%[1]s -p StandardOutput=truncate:%[2]s %[3]s /root/steady %[4]s", unit, worked(unit), properties, flags))
	n.loads = append(n.loads, unit)
	n.t.Cleanup(func() { n.run("systemctl stop " + unit + " 2>/dev/null || true") })
	n.until(time.Minute, unit+" works", func() bool { return n.run("cat "+worked(unit)+" 2>/dev/null || true") != "" })
}

func worked(unit string) string { return "/run/" + unit + ".jsonl" }

func (n *node) mac() string {
	n.t.Helper()
	return strings.TrimSpace(n.run("cat /sys/class/net/eth0/address"))
}

func (n *node) bootID() string {
	n.t.Helper()
	return strings.TrimSpace(n.run("cat /proc/sys/kernel/random/boot_id"))
}

// The slices that a kubelet would make for a pod of each class.
const (
	podUID   = "0d1c2b3a-4f5e-4678-9abc-def012345678"
	podSlice = "kubepods-burstable-pod0d1c2b3a_4f5e_4678_9abc_def012345678.slice"
)

// inPod are the properties of a unit in that slice.
func inPod(container string) string {
	return "--slice=" + podSlice + " -p CPUAccounting=yes -p MemoryAccounting=yes -p IOAccounting=yes " + container
}
