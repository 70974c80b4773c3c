package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// podTree makes v2 pods of files as a kernel shows them.
func podTree(tb testing.TB, n int) (top string) {
	tb.Helper()
	top = tb.TempDir()
	files := map[string]string{
		"cgroup.procs":        "",
		"cpu.stat":            "usage_usec 208376123\nuser_usec 108376123\nsystem_usec 100000000\nnice_usec 0\ncore_sched.force_idle_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\nnr_bursts 0\nburst_usec 0\n",
		"memory.current":      "104857600\n",
		"memory.max":          "max\n",
		"memory.swap.current": "0\n",
		"memory.stat":         "anon 1\nfile 2\ninactive_file 4096\npgsteal 9\nactive_file 3\n",
		"memory.events":       "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n",
		"io.stat":             "254:0 rbytes=414187520 wbytes=98304 rios=10112 wios=24 dbytes=0 dios=0\n8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n",
	}
	for _, r := range []string{"cpu", "memory", "io"} {
		files[r+".pressure"] = "some avg10=0.00 avg60=0.00 avg300=0.00 total=49250015\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=48250015\n"
	}
	require.NoError(tb, os.WriteFile(top+"/cgroup.controllers", nil, 0o600))
	require.NoError(tb, os.MkdirAll(top+"/kubepods.slice/kubepods-burstable.slice", 0o755))
	for _, slice := range []string{"", "/kubepods.slice", "/kubepods.slice/kubepods-burstable.slice"} {
		require.NoError(tb, os.WriteFile(top+slice+"/cgroup.procs", nil, 0o600))
	}
	for i := range n {
		pod := fmt.Sprintf("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f7c1c9e_3f0a_4d8e_9a51_%012d.slice", i)
		dir := filepath.Join(top, pod)
		require.NoError(tb, os.MkdirAll(dir, 0o755))
		for name, content := range files {
			require.NoError(tb, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
	}
	return top
}

// BenchmarkRead reads pods that are all active, and pods that are all idle but
// must each be checked.
func BenchmarkRead(b *testing.B) {
	for _, n := range []int{1, 250, 1000} {
		top := podTree(b, n)
		b.Run(fmt.Sprintf("pods=%d/busy", n), func(b *testing.B) { benchmarkRead(b, top, n, true) })
		b.Run(fmt.Sprintf("pods=%d/resting", n), func(b *testing.B) { benchmarkRead(b, top, n, false) })
	}
}

func benchmarkRead(b *testing.B, top string, n int, busy bool) {
	c, err := Find("/proc", top, nil)
	require.NoError(b, err)
	defer c.Close()
	b.ReportAllocs()
	for at := time.Second; b.Loop(); at += time.Second {
		c.pace = pace{}
		for _, t := range c.tracked {
			t.idle = !busy
		}
		_, _ = c.Read(at)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/pod")
}
