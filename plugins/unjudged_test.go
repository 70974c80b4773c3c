package plugins

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestUnjudged(t *testing.T) {
	memory := Verdict{Plugin: "memory-stall", Resource: Memory, Scope: "node"}
	cpu := Verdict{Plugin: "cpu-contention", Resource: CPU, Scope: "node"}
	disk := Verdict{Plugin: "disk-contention", Resource: Disk, Scope: "sda"}
	withDisk := &snapshot.Snapshot{Disks: []snapshot.DiskState{{Disk: snapshot.Disk{Name: "sda", Layer: snapshot.LayerLeaf, DiskCounters: snapshot.DiskCounters{Reads: 1}}}}}
	withLink := &snapshot.Snapshot{NICs: []snapshot.NICState{{NIC: snapshot.NIC{Name: "eth0", Layer: snapshot.LayerLeaf, Carrier: snapshot.Some(true)}}}}
	but := func(v Verdict, change func(*Verdict)) Verdict {
		change(&v)
		return v
	}
	for what, row := range map[string]struct {
		of       *snapshot.Snapshot
		verdicts []Verdict
		want     []Unjudged
	}{
		"all was judged":               {withDisk, []Verdict{memory, cpu, disk}, nil},
		"a measurement is missing":     {withDisk, []Verdict{memory, cpu, but(disk, func(v *Verdict) { v.Absent = "no PSI" })}, []Unjudged{{Disk, "sda", "disk-contention", "no PSI"}}},
		"a level was judged":           {withDisk, []Verdict{memory, cpu, but(disk, func(v *Verdict) { v.Absent, v.Level = "few workloads", Soft })}, nil},
		"a rule has just started":      {withDisk, []Verdict{memory, cpu, but(disk, func(v *Verdict) { v.Partial = true })}, []Unjudged{{Disk, "sda", "disk-contention", "the agent, the node or the rule has just started"}}},
		"no rule judges the CPUs":      {withDisk, []Verdict{memory, disk}, []Unjudged{{CPU, "", "", "no plugin judges it"}}},
		"no rule judges a disk in use": {withDisk, []Verdict{memory, cpu}, []Unjudged{{Disk, "", "", "no plugin judges it"}}},
		"no rule judges a link":        {withLink, []Verdict{memory, cpu}, []Unjudged{{NetworkIO, "", "", "no plugin judges it"}}},
		"a rule about single workloads judges no node": {
			&snapshot.Snapshot{},
			[]Verdict{memory, but(cpu, func(v *Verdict) { v.PerWorkload = true })},
			[]Unjudged{{CPU, "", "", "no plugin judges it"}},
		},
	} {
		t.Run(what, func(t *testing.T) {
			assert.Equal(t, row.want, (&Levels{Verdicts: row.verdicts}).Unjudged(row.of))
		})
	}
}

func TestReportOnly(t *testing.T) {
	l := &Levels{Verdicts: []Verdict{{Resource: CPU, Level: Soft, ReportOnly: true}, {Resource: Disk, Level: Soft}}}
	assert.Equal(t, map[Resource]Level{Disk: Soft}, l.NodePressure(), "no data mover load waits for what is only reported, and the controller counts it for nothing")
	assert.Equal(t, map[Resource]Level{CPU: Soft}, l.Reported())
}

func TestUnjudgedUnreadable(t *testing.T) {
	s := &snapshot.Snapshot{Probes: []snapshot.Probe{{Name: "disks", Error: "/proc/diskstats: permission denied"}, {Name: "nics"}}}
	l := &Levels{Verdicts: []Verdict{{Resource: Memory}, {Resource: CPU}}}
	assert.Equal(t, []Unjudged{{Resource: Disk, Why: "cannot be read: /proc/diskstats: permission denied"}}, l.Unjudged(s))
}
