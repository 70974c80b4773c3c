package probes

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// asJSON gives what a client sees.
func asJSON(t *testing.T, v any) map[string]any {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(b, &m))
	return m
}

// recordedSnapshots are those of the recorded machine with a workload beside,
// of which some measurements are absent.
func recordedSnapshots(t *testing.T) []*snapshot.Snapshot {
	t.Helper()
	m := recordedMachine(t)
	m.write("sys/class/net/eth0/speed", "1000\n")
	host, history := m.host(), testHistory()
	var list []*snapshot.Snapshot
	for more := true; more; more = m.next() {
		s := mustSample(t, host)
		n := uint64(len(list))
		s.Workloads = []snapshot.Workload{{
			Cgroup: "/a", Inode: 9, Kind: snapshot.KindPod, Name: "a", PodUID: "6f7c1c9e-3f0a-4d8e-9a51-0b5b6f6f2c11",
			MemoryBytes: snapshot.Some(n << 20), InactiveFileBytes: u64(0), CPUMicroseconds: snapshot.Some(n * 5e5),
			IO:     []snapshot.WorkloadIO{{Number: "254:0", Reads: n}},
			Absent: snapshot.Absent{"memoryLimitBytes": "no limit"},
		}}
		list = append(list, history.Add(s))
	}
	require.Len(t, list, 11)
	return list
}

func TestSnapshotJSONAbsentNeverZero(t *testing.T) {
	for _, s := range append(recordedSnapshots(t), testHistory().Add(&snapshot.Sample{Monotonic: 1})) {
		b, err := json.Marshal(s)
		require.NoError(t, err)
		assert.NotContains(t, string(b), "null")
	}
	first := asJSON(t, testHistory().Add(&snapshot.Sample{Monotonic: 1}))
	assert.Equal(t, []any{}, first["disks"], "a list that is empty is a list")
	assert.Empty(t, first["cpu"])
	assert.Empty(t, first["memory"])
	assert.Empty(t, first["network"])
	assert.Equal(t, map[string]any{"totals": map[string]any{}}, first["pressure"])
	assert.Equal(t, map[string]any{"rates": "first sample: a rate needs two"}, first["absent"])
}

func TestSnapshotJSONRoundTrip(t *testing.T) {
	for _, s := range recordedSnapshots(t) {
		b, err := json.Marshal(s)
		require.NoError(t, err)
		var back snapshot.Snapshot
		require.NoError(t, json.Unmarshal(b, &back))
		assert.Empty(t, cmp.Diff(s, &back, sameSamples()))
		again, err := json.Marshal(back)
		require.NoError(t, err)
		assert.Equal(t, string(b), string(again))
		assert.Empty(t, back.Trend())
	}
}

// fields visits every field of a struct type and of those it holds.
func fields(of reflect.Type, visit func(in reflect.Type, f reflect.StructField)) {
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(of reflect.Type) {
		for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || seen[of] || of == reflect.TypeFor[time.Time]() || of.Name() == "point" {
			return
		}
		seen[of] = true
		for f := range of.Fields() {
			if f.IsExported() && !strings.HasPrefix(of.Name(), "Opt[") {
				visit(of, f)
			}
			walk(f.Type)
		}
	}
	walk(of)
}

func key(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func TestSnapshotOptionalOmitzero(t *testing.T) {
	n := 0
	visit := func(in reflect.Type, f reflect.StructField) {
		if strings.HasPrefix(f.Type.Name(), "Opt[") {
			n++
			assert.Contains(t, f.Tag.Get("json"), ",omitzero", "%s.%s", in.Name(), f.Name)
		}
	}
	fields(reflect.TypeFor[snapshot.Snapshot](), visit)
	fields(reflect.TypeFor[snapshot.Sample](), visit)
	assert.Greater(t, n, 50)
}

// A key ends in its unit or says that it counts.
func TestSnapshotKeysHaveUnits(t *testing.T) {
	unit := regexp.MustCompile(`(Bytes|Seconds|Nanoseconds|Microseconds|PerSecond|Ratio|Total|Cpus|Cores|Millicores)$`)
	// Counts and numbers that name something have none.
	none := []string{"sequence", "gaps", "index", "inode", "oomKills", "limitHits", "queueLength", "requestsInFlight", "namespace", "files", "filesFree", "filesUsed", "moreCulprits", "moreSufferers", "numa"}
	n := 0
	visit := func(in reflect.Type, f reflect.StructField) {
		of := f.Type
		if strings.HasPrefix(of.Name(), "Opt[") {
			of = of.Field(0).Type
		}
		switch of.Kind() {
		case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
			n++
			assert.True(t, unit.MatchString(key(f)) || slices.Contains(none, key(f)), "%s.%s: %q", in.Name(), f.Name, key(f))
		}
	}
	fields(reflect.TypeFor[snapshot.Snapshot](), visit)
	fields(reflect.TypeFor[snapshot.Sample](), visit)
	assert.Greater(t, n, 80)
}

func TestSnapshotKeysCamelCase(t *testing.T) {
	visit := func(in reflect.Type, f reflect.StructField) {
		if !f.Anonymous && key(f) != "-" {
			assert.Regexp(t, `^[a-z][a-zA-Z]*$`, key(f), "%s.%s", in.Name(), f.Name)
		}
	}
	fields(reflect.TypeFor[snapshot.Snapshot](), visit)
	fields(reflect.TypeFor[snapshot.Sample](), visit)
}
