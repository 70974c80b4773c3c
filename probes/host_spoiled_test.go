package probes

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes/internal/psi"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// ownerOf is the probe that reads a file; facts of sysfs beside a device's
// counters belong to no probe, and the device has their reasons.
func ownerOf(path string) string {
	for prefix, probe := range map[string]string{
		"proc/stat": "cpu", "proc/meminfo": "memory", "proc/vmstat": "vmstat", "proc/diskstats": "disks",
		"proc/pressure/": "pressure", "proc/1/net/dev": "nics", "proc/1/net/snmp": "network", "proc/1/net/netstat": "network",
		"proc/net/softnet_stat": "softnet", "proc/sys/": "boot",
	} {
		if strings.HasPrefix(path, prefix) {
			return probe
		}
	}
	return ""
}

// Peers return 0 on any read error. Here each file in turn is missing, empty,
// truncated or garbage: there is no panic, only its own probe reports an error
// in one line, and all other values are those of the whole files.
func TestHostSpoiledFileCostsOwnProbe(t *testing.T) {
	whole := flatten(t, recordedMachine(t).sample())
	for _, path := range recordedMachine(t).files() {
		if strings.Contains(path, "loop") || strings.Contains(path, "zram") { // left out: they did nothing
			continue
		}
		for how, spoil := range spoilings(path) {
			t.Run(how+" "+path, func(t *testing.T) {
				m := recordedMachine(t)
				h := m.host()
				spoil(m)
				s := mustSample(t, h)
				onlyFails(t, s, ownerOf(path))
				got := flatten(t, s)
				assert.False(t, maps.Equal(whole, got), "the file is not read at all")
				for key, value := range got {
					was, known := whole[key]
					assert.True(t, strings.Contains(key, "absent") || known && was == value, "%s is %v, was %v", key, value, was)
				}
			})
		}
	}
}

// onlyFails checks that only that probe reports an error. The tree has no
// cgroups.
func onlyFails(t *testing.T, s *snapshot.Sample, name string) {
	t.Helper()
	for _, p := range s.Probes {
		switch p.Name {
		case "workloads":
		case name:
			assert.NotEmpty(t, p.Error, "the probe says nothing")
			assert.NotContains(t, p.Error, "\n")
		default:
			assert.Empty(t, p.Error, p.Name)
		}
	}
}

func spoilings(path string) map[string]func(*machineTree) {
	how := map[string]func(*machineTree){
		"missing": func(m *machineTree) { m.remove(path) },
		"empty":   func(m *machineTree) { m.write(path, "") },
		"garbage": func(m *machineTree) { m.write(path, "\x00\xff: -1 x\n: 1\n  a: z 9\nsome full 99999999999999999999\n") },
		"a directory in place of": func(m *machineTree) {
			m.remove(path)
			require.NoError(m, os.Mkdir(m.path(path), 0o755))
		},
	}
	if strings.HasPrefix(path, "proc/") && filepath.Base(path) != "boot_id" {
		how["half a line of"] = func(m *machineTree) {
			line, _, _ := strings.Cut(m.read(path), "\n")
			m.write(path, line[:len(line)/2])
		}
	}
	switch filepath.Base(path) {
	case "boot_id", "address":
		delete(how, "garbage") // any text is one
	}
	return how
}

// flatten gives each measurement of a sample by its path.
func flatten(t *testing.T, s *snapshot.Sample) map[string]any {
	t.Helper()
	flat := map[string]any{}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			name, _ := v["device"].(string)
			for key, value := range v {
				walk(at+"."+name+"."+key, value)
			}
		case []any:
			for _, value := range v {
				walk(at, value)
			}
		case nil:
		default:
			flat[at] = v
		}
	}
	for key, value := range asJSON(t, s) {
		switch key {
		case "time", "probes", "monotonicNanoseconds", "boottimeNanoseconds":
		default:
			if key != "bootId" || value != "" {
				walk(key, value)
			}
		}
	}
	return flat
}

func TestHostFailedProbeReason(t *testing.T) {
	m := recordedMachine(t)
	for _, path := range m.files() {
		if strings.HasPrefix(path, "proc/") && path != "proc/stat" {
			m.remove(path)
		}
	}
	s := m.sample()
	assert.Contains(t, s.Memory.Absent["meminfo"], "no such file")
	assert.Contains(t, s.Memory.Absent["vmstat"], "no such file")
	assert.Contains(t, s.Network.Absent["tcp"], "no such file")
	assert.Contains(t, s.Network.Absent["listenDropsTotal"], "no such file")
	assert.Contains(t, s.Network.Absent["softnetSqueezedTotal"], "no such file")
	for _, resource := range []string{"cpu", "memory", "io"} {
		assert.Equal(t, psi.WhyNone, s.Pressure.Absent[resource])
	}
	assert.Equal(t, "cpu, memory, io: "+psi.WhyNone, probeError(t, s, "pressure"), "each is named, the reason once")
	assert.Contains(t, probeError(t, s, "workloads"), "cgroup")
}
