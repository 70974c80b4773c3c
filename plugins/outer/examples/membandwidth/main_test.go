package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
)

// machine is a made-up host with two sockets whose memory carries 100 bytes a
// second each, laid out as the kernel's documentation of resctrl has it.
type machine struct {
	*testing.T
	*memBandwidth
	clock time.Time
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{T: t, clock: time.Unix(1000, 0), memBandwidth: &memBandwidth{
		procfs: filepath.Join(dir, "proc"), resctrl: filepath.Join(dir, "resctrl"), limit: 100, soft: 0.80, hard: 0.95,
	}}
	m.now = func() time.Time { return m.clock }
	m.write("proc/filesystems", "nodev\tsysfs\nnodev\tresctrl\n\text4\n")
	m.write("resctrl/info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n")
	m.write("resctrl/schemata", "L3:0=fff;1=fff\n")
	m.bytes("", 0, 0)
	return m
}

func (m *machine) write(path, text string) {
	m.Helper()
	path = filepath.Join(filepath.Dir(m.resctrl), path)
	require.NoError(m, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(m, os.WriteFile(path, []byte(text), 0o644))
}

// bytes that a group has moved so far, on each socket.
func (m *machine) bytes(group string, sockets ...any) {
	m.Helper()
	for i, n := range sockets {
		m.write(filepath.Join("resctrl", group, fmt.Sprintf("mon_data/mon_L3_%02d/mbm_total_bytes", i)), fmt.Sprintln(n))
	}
}

// process of a pod is in a group.
func (m *machine) process(group string, pids map[string]string) {
	m.Helper()
	var tasks strings.Builder
	for pid, cgroup := range pids {
		fmt.Fprintln(&tasks, pid)
		if cgroup != "" {
			m.write(filepath.Join("proc", pid, "cgroup"), "0::"+cgroup+"\n")
		}
	}
	m.write(filepath.Join("resctrl", group, "tasks"), tasks.String())
}

// second lets one pass.
func (m *machine) second() (kit.Threshold, error) {
	m.clock = m.clock.Add(time.Second)
	return m.Threshold(m.Context(), nil)
}

func (m *machine) said() kit.Threshold {
	m.Helper()
	said, err := m.second()
	require.NoError(m, err)
	return said
}

func (m *machine) names(n int, scope string, pods ...*corev1.Pod) (list []string) {
	m.Helper()
	named, err := m.Top(m.Context(), kit.Ask{Pods: pods, N: n, Scope: scope})
	require.NoError(m, err)
	for _, p := range named.Pods {
		list = append(list, p.Name)
	}
	return list
}

func TestMemBandwidthBusiestSocket(t *testing.T) {
	m := newMachine(t)
	m.write("resctrl/batch/schemata", "MB:0=50;1=50\n")
	m.bytes("batch", 0, 0)
	m.bytes("batch/mon_groups/a", 0, 0)
	_, err := m.second()
	require.ErrorContains(t, err, "two readings")

	m.bytes("", 10, 30)
	m.bytes("batch", 20, 52)
	m.bytes("batch/mon_groups/a", 20, 52) // in batch already
	said := m.said()
	assert.Equal(t, "mon_L3_01", said.Scope)
	assert.InDelta(t, 0.82, said.Observed, 1e-9)
	assert.Equal(t, kit.Soft, said.Level)
	assert.Equal(t, "MemoryBandwidthPressure", said.Condition.Name)

	m.bytes("", 10, 75)
	m.bytes("batch", 20, 102)
	assert.Equal(t, kit.Hard, m.said().Level)
	m.bytes("", 10, 161)
	assert.Equal(t, kit.Hard, m.said().Level, "86 of 100: above nine tenths of the line")
	m.bytes("", 10, 235)
	assert.Equal(t, kit.Soft, m.said().Level)
	m.bytes("", 10, 300)
	assert.Equal(t, kit.None, m.said().Level)
}

func TestMemBandwidthNamesPods(t *testing.T) {
	m := newMachine(t)
	in := func(pod, container string) string { return "/kubepods/burstable/pod" + uid(pod) + "/" + container }
	groups := []string{"small", "large", "shared", "mine", "gone"}
	for _, g := range groups {
		m.bytes("mon_groups/"+g, 0, 0)
	}
	m.process("mon_groups/small", map[string]string{"1": in("a", "x")})
	m.process("mon_groups/large", map[string]string{"2": in("b", "x/pod"+uid("a")), "3": strings.ReplaceAll(in("b", "y"), "-", "_"), "4": ""})
	m.process("mon_groups/shared", map[string]string{"5": in("a", "y"), "6": in("c", "x")})
	m.process("mon_groups/mine", map[string]string{"7": in("d", "x")})
	_, err := m.second()
	require.Error(t, err)
	m.bytes("", 98, 0)
	for i, g := range groups {
		m.bytes("mon_groups/"+g, []any{20, 30, 40, 5, 3}[i], 0)
	}
	require.Equal(t, kit.Hard, m.said().Level)
	all := []*corev1.Pod{pod("a"), pod("b"), pod("c"), pod("d")}
	assert.Equal(t, []string{"b", "a"}, m.names(5, "mon_L3_00", all...), "d has less than a fifth, c shares its group")
	assert.Equal(t, []string{"b"}, m.names(1, "mon_L3_00", all...))
	assert.Equal(t, []string{"a"}, m.names(5, "mon_L3_00", all[0]))
	assert.Empty(t, m.names(0, "mon_L3_00", all...))
	assert.Empty(t, m.names(5, "mon_L3_01", all...), "nothing moves there")
}

func TestMemBandwidthUnreadable(t *testing.T) {
	m := newMachine(t)
	m.bytes("", "Unavailable", "Error")
	_, err := m.second()
	require.Error(t, err)
	_, err = m.second()
	require.ErrorContains(t, err, "two readings of a counter")
	m.bytes("", 50, "Unavailable")
	_, err = m.second()
	require.ErrorContains(t, err, "two readings")
	m.bytes("", 90, "Unavailable")
	assert.Equal(t, "mon_L3_00", m.said().Scope)
	m.bytes("", 10, 1)
	_, err = m.second()
	require.ErrorContains(t, err, "two readings", "a counter that went back")
}

func TestMemBandwidthWithoutResctrl(t *testing.T) {
	m := newMachine(t)
	require.NoError(t, os.RemoveAll(m.resctrl))
	_, err := m.second()
	require.EqualError(t, err, "resctrl is not mounted on "+m.resctrl+": the kernel supports it; mount it with mount -t resctrl")
	m.write("proc/filesystems", "nodev\tsysfs\n")
	_, err = m.second()
	require.ErrorContains(t, err, "this kernel, CPU or virtual machine does not count memory traffic")
	m.limit = 0
	_, err = m.second()
	require.ErrorContains(t, err, "--limit")
}

// Nothing is mounted, whatever the running kernel has.
func TestOnRunningKernel(t *testing.T) {
	before, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	m := memBandwidth{procfs: "/proc", resctrl: "/sys/fs/resctrl", limit: 1e12, soft: 0.8, hard: 0.95, now: time.Now}
	_, first := m.Threshold(t.Context(), nil)
	require.Error(t, first)
	if m.checkResctrl() == nil {
		said, err := m.Threshold(t.Context(), nil)
		require.NoError(t, err)
		assert.NotEmpty(t, said.Scope)
	} else {
		assert.Regexp(t, "resctrl unavailable|not mounted", first.Error())
	}
	after, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	assert.Equal(t, strings.Count(string(before), "resctrl"), strings.Count(string(after), "resctrl"))
}

func uid(name string) string { return name + "aaaaaaa-1111-1111-1111-111111111111" }

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid(name))}}
}
