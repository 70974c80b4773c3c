package probes

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// readMemory reads /proc/meminfo.
func (h *Host) readMemory(s *snapshot.Sample) error {
	m, err := h.proc.Meminfo()
	if err != nil {
		s.Memory.Absent.Because("meminfo", err.Error())
		return err
	}
	set := func(to *snapshot.Opt[uint64], bytes, number *uint64, name string) {
		switch {
		case bytes == nil:
			s.Memory.Absent.Because(name, "not in /proc/meminfo")
		case *bytes != *number*1024: // the parser takes a line without kB for bytes
			s.Memory.Absent.Because(name, "without the unit kB in /proc/meminfo")
		default:
			*to = snapshot.Some(*bytes)
		}
	}
	set(&s.Memory.TotalBytes, m.MemTotalBytes, m.MemTotal, "totalBytes")
	set(&s.Memory.AvailableBytes, m.MemAvailableBytes, m.MemAvailable, "availableBytes")
	set(&s.Memory.FreeBytes, m.MemFreeBytes, m.MemFree, "freeBytes")
	set(&s.Memory.SwapTotalBytes, m.SwapTotalBytes, m.SwapTotal, "swapTotalBytes")
	set(&s.Memory.SwapFreeBytes, m.SwapFreeBytes, m.SwapFree, "swapFreeBytes")
	set(&s.Memory.InactiveFileBytes, m.InactiveFileBytes, m.InactiveFile, "inactiveFileBytes")
	if s.Memory.TotalBytes.IsZero() {
		return errors.New("no MemTotal in /proc/meminfo")
	}
	return nil
}

// readVMStat reads /proc/vmstat. Its names differ between kernel versions.
func (h *Host) readVMStat(s *snapshot.Sample) error {
	m := &s.Memory
	b, err := os.ReadFile(filepath.Join(h.paths.Procfs, "vmstat"))
	if err != nil {
		m.Absent.Because("vmstat", err.Error())
		return err
	}
	found, err := vmCounters(b)
	read := func(to *snapshot.Opt[uint64], name string, keys ...string) {
		if *to = found.sum(keys...); to.IsZero() {
			m.Absent.Because(name, "no "+strings.Join(keys, " and ")+" in /proc/vmstat")
		}
	}
	read(&m.ScansDirect, "scansDirectTotal", "pgscan_direct")
	read(&m.ScansKswapd, "scansKswapdTotal", "pgscan_kswapd")
	read(&m.Reclaimed, "reclaimedTotal", "pgsteal_direct", "pgsteal_kswapd")
	read(&m.OOMKills, "oomKillsTotal", "oom_kill")
	read(&m.SwapIns, "swapInsTotal", "pswpin")
	read(&m.SwapOuts, "swapOutsTotal", "pswpout")
	if m.Refaults = found.sum("workingset_refault"); m.Refaults.IsZero() { // before 5.9
		read(&m.Refaults, "refaultsTotal", "workingset_refault_anon", "workingset_refault_file")
	}
	if err == nil && m.ScansDirect.IsZero() && m.ScansKswapd.IsZero() {
		err = errNoScans
	}
	if err != nil {
		m.Absent.Because("vmstat", err.Error())
	}
	return err
}

var (
	errNoScans       = errors.New("no pgscan_direct and no pgscan_kswapd in /proc/vmstat")
	errTruncatedFile = errors.New("/proc/vmstat ends in the middle of a line")
)

// vmCounts has the lines of /proc/vmstat that are used.
type vmCounts map[string]snapshot.Opt[uint64]

func vmCounters(b []byte) (vmCounts, error) {
	found := vmCounts{
		"pgscan_direct": {}, "pgscan_kswapd": {}, "pgsteal_direct": {}, "pgsteal_kswapd": {}, "oom_kill": {}, "pswpin": {}, "pswpout": {},
		"workingset_refault": {}, "workingset_refault_anon": {}, "workingset_refault_file": {},
	}
	whole := b[:bytes.LastIndexByte(b, '\n')+1]
	err := parse.Keyed(whole, func(key []byte, value uint64) {
		if _, asked := found[string(key)]; asked {
			found[string(key)] = snapshot.Some(value)
		}
	})
	if err == nil && len(whole) < len(b) {
		err = errTruncatedFile
	}
	return found, err
}

// sum is absent if one counter is missing: without it for a tick, the sum of
// the others would decrease and increase again, which looks like activity.
func (c vmCounts) sum(keys ...string) snapshot.Opt[uint64] {
	sum := uint64(0)
	for _, key := range keys {
		v, ok := c[key].Get()
		if !ok {
			return snapshot.Opt[uint64]{}
		}
		sum += v
	}
	return snapshot.Some(sum)
}
