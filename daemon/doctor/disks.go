package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Disks is what decides from which await a disk counts as slow.
type Disks struct {
	// Rule as configured.
	Rule plugins.DiskContention
	// Baselines that an agent saved; Unread is why they cannot be read.
	Baselines plugins.Baselines
	Unread    error
}

// rows tell for each disk from which await its requests count as slow, and why; disks
// with the same finding share a row.
func (p Disks) rows(s *snapshot.Sample) []Row {
	const check = "disk threshold"
	if !p.Rule.Enabled {
		return []Row{{Pass, check, "disks are not judged (plugins.diskContention.enabled: false)"}}
	}
	var findings []string
	names := map[string][]string{}
	for i := range s.Disks {
		d := &s.Disks[i]
		if !plugins.JudgesDisk(d) {
			continue
		}
		f := p.finding(d, s.BootID)
		if !slices.Contains(findings, f) {
			findings = append(findings, f)
		}
		names[f] = append(names[f], d.Name)
	}
	var rows []Row
	if p.Unread != nil {
		rows = append(rows, Row{Warn, check, "the saved disk baselines cannot be read, the thresholds below are those without: " + p.Unread.Error()})
	}
	for _, f := range findings {
		rows = append(rows, Row{Pass, check, strings.Join(names[f], ", ") + ": " + f})
	}
	return rows
}

func (p Disks) finding(d *snapshot.Disk, bootID string) string {
	if text, named := p.Rule.CeilingText(d.Name); named {
		return "under pressure at its ceiling, " + text + " (plugins.diskContention.ceilings)"
	}
	t := p.Rule.ThresholdOf(d, p.Baselines[plugins.DiskKey(d, bootID)])
	text := fmt.Sprintf("slow from %s: %s", milliseconds(t.Least), t.Why)
	if t.Most > 0 {
		text += fmt.Sprintf("; up to %s where its requests usually take %s (%d times that)", milliseconds(t.Most), milliseconds(t.Baseline), p.Rule.Factor)
	}
	return text
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
}

// attribution warns where no workload's IO is counted: then no contention on a disk is
// judged while a workload waits.
func attribution(s *snapshot.Sample) []Row {
	why := ""
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if len(w.IO) > 0 {
			return nil
		}
		if why == "" {
			why = w.Absent["io"]
		}
	}
	if why == "" {
		return nil
	}
	return []Row{{Warn, "workload IO", "no workload's IO is counted: " + why + ". Whose requests a workload waits for is unknown: a disk is not judged while one waits (on cgroup v1 give the disk a throttle rule, on v2 enable the io controller)"}}
}

// stalls warns where no workload's stall is read: then it is unknown which one waits.
func stalls(s *snapshot.Sample) []Row {
	why := ""
	for i := range s.Workloads {
		absent := s.Workloads[i].Absent["pressure"]
		if absent == "" {
			return nil
		}
		why = cmp.Or(why, absent)
	}
	if why == "" {
		return nil
	}
	return []Row{{Warn, "workload stall", "no workload's stall is read: " + why + ". Which workload waits is unknown: CPUs and disks are not judged while tasks wait for them (needs cgroup v2, booted with psi=1)"}}
}
