package snapshot

import (
	"fmt"
	"testing"
)

// BenchmarkAdd derives the snapshot of 250 pods that all use both disks.
func BenchmarkAdd(b *testing.B) {
	n := sharing{disks: []Disk{leafDisk("sda", "8:0", 100, 100<<20), leafDisk("sdb", "8:16", 50, 1<<20)}, scans: 1, stall: 0.2}
	for i := range 250 {
		n.users = append(n.users, user{
			cgroup: fmt.Sprintf("/kubepods/burstable/pod%08d-1111-4111-8111-111111111111", i),
			reads:  map[string]uint64{"8:0": 2, "8:16": 1}, bytes: 4096, ioStall: 0.1, memoryStall: 0.1, grows: 4096,
		})
	}
	h := testHistory()
	samples := make([]*Sample, 1000)
	for i := range samples {
		samples[i] = n.sample(uint64(i))
	}
	b.ReportAllocs()
	at := 0
	for b.Loop() {
		if at == len(samples) {
			h, at = testHistory(), 0
		}
		h.Add(samples[at])
		at++
	}
}
