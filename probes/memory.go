package probes

import (
	"errors"
	"os"
	"path/filepath"
)

// readMemory reads /proc/meminfo.
func (h *Host) readMemory(s *Sample) error {
	m, err := h.proc.Meminfo()
	if err != nil {
		s.Memory.Absent.Because("meminfo", err.Error())
		return err
	}
	set := func(to *Opt[uint64], from *uint64, name string) {
		if from == nil {
			s.Memory.Absent.Because(name, "not in /proc/meminfo")
			return
		}
		*to = Some(*from)
	}
	set(&s.Memory.TotalBytes, m.MemTotalBytes, "totalBytes")
	set(&s.Memory.AvailableBytes, m.MemAvailableBytes, "availableBytes")
	set(&s.Memory.FreeBytes, m.MemFreeBytes, "freeBytes")
	set(&s.Memory.SwapTotalBytes, m.SwapTotalBytes, "swapTotalBytes")
	set(&s.Memory.SwapFreeBytes, m.SwapFreeBytes, "swapFreeBytes")
	return nil
}

// readVMStat reads /proc/vmstat. Names come and go with kernel versions; a
// sum is there when at least one of its names is.
func (h *Host) readVMStat(s *Sample) error {
	b, err := os.ReadFile(filepath.Join(h.paths.Procfs, "vmstat"))
	if err != nil {
		s.Memory.Absent.Because("vmstat", err.Error())
		return err
	}
	m := &s.Memory
	sums := map[string]*Opt[uint64]{
		"pgscan_direct":           &m.ScansDirect,
		"pgscan_kswapd":           &m.ScansKswapd,
		"workingset_refault":      &m.Refaults, // before 5.9
		"workingset_refault_anon": &m.Refaults,
		"workingset_refault_file": &m.Refaults,
		"oom_kill":                &m.OOMKills,
		"pswpin":                  &m.SwapIns,
		"pswpout":                 &m.SwapOuts,
	}
	err = parseKeyed(b, func(key []byte, value uint64) {
		if sum, ok := sums[string(key)]; ok {
			before, _ := sum.Get() // absent is where a sum starts
			*sum = Some(before + value)
		}
	})
	if m.ScansDirect.IsZero() && m.ScansKswapd.IsZero() {
		err = errors.Join(err, errors.New("no pgscan_direct and no pgscan_kswapd in /proc/vmstat"))
	}
	if err != nil {
		m.Absent.Because("vmstat", err.Error())
	}
	return err
}
