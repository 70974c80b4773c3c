package probes

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// AvailableMemory reads what is available now, in bytes (MemAvailable of /proc/meminfo).
func (h *Host) AvailableMemory() (uint64, error) {
	b, err := h.files.read("meminfo")
	if err != nil {
		return 0, err
	}
	n, why := kilobytes(b, "MemAvailable:")
	available, known := n.Get()
	if !known {
		return 0, errors.New("MemAvailable of /proc/meminfo: " + why)
	}
	return available, nil
}

// readMemory reads /proc/meminfo.
func (h *Host) readMemory(s *snapshot.Sample) error {
	m := &s.Memory
	b, err := h.files.read("meminfo")
	if err != nil {
		m.Absent.Because("meminfo", err.Error())
		return err
	}
	lines := [...]struct {
		key, name string
		to        *snapshot.Opt[uint64]
	}{
		{"MemTotal:", "totalBytes", &m.TotalBytes},
		{"MemAvailable:", "availableBytes", &m.AvailableBytes},
		{"MemFree:", "freeBytes", &m.FreeBytes},
		{"SwapTotal:", "swapTotalBytes", &m.SwapTotalBytes},
		{"SwapFree:", "swapFreeBytes", &m.SwapFreeBytes},
		{"Inactive(file):", "inactiveFileBytes", &m.InactiveFileBytes},
	}
	for i := range lines {
		l := &lines[i]
		n, why := kilobytes(b, l.key)
		if *l.to = n; why != "" {
			m.Absent.Because(l.name, why)
		}
	}
	if n, _ := kilobytes(b, "Hugetlb:"); n != snapshot.Some[uint64](0) { // older kernels have no such line
		m.HugetlbBytes = n
	}
	if m.TotalBytes.IsZero() {
		return errNoMemTotal
	}
	return nil
}

var errNoMemTotal = errors.New("no MemTotal in kB in /proc/meminfo")

// kilobytes returns the value of a line of /proc/meminfo in bytes, or why there is none.
// A line in another unit is not used: a thousandth of the available memory would evict
// pods.
func kilobytes(b []byte, wanted string) (bytesOf snapshot.Opt[uint64], why string) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		key, rest := parse.Field(line)
		if string(key) != wanted {
			continue
		}
		digits, rest := parse.Field(rest)
		unit, _ := parse.Field(rest)
		n, err := parse.Uint(digits)
		switch {
		case err == nil && n > maxKiB:
			err = parse.ErrTooLarge
		case err == nil && string(unit) != "kB":
			return bytesOf, "without the unit kB in /proc/meminfo"
		}
		if err != nil {
			return bytesOf, "/proc/meminfo: " + parse.LineError(line, err).Error()
		}
		return snapshot.Some(n << 10), ""
	}
	return bytesOf, "not in /proc/meminfo"
}

// readVMStat reads /proc/vmstat. Its names differ between kernel versions.
func (h *Host) readVMStat(s *snapshot.Sample) error {
	m := &s.Memory
	b, err := h.files.read("vmstat")
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

// vmCounts has the lines of /proc/vmstat that are used, by vmKeys.
type vmCounts [10]snapshot.Opt[uint64]

// vmKeys are their keys.
func vmKeys() [len(vmCounts{})]string {
	return [len(vmCounts{})]string{
		"pgscan_direct", "pgscan_kswapd", "pgsteal_direct", "pgsteal_kswapd", "oom_kill", "pswpin", "pswpout",
		"workingset_refault", "workingset_refault_anon", "workingset_refault_file",
	}
}

func vmCounters(b []byte) (found vmCounts, err error) {
	keys := vmKeys()
	whole := b[:bytes.LastIndexByte(b, '\n')+1]
	err = parse.Keyed(whole, func(key []byte, value uint64) {
		for i := range keys {
			if keys[i] == string(key) {
				found[i] = snapshot.Some(value)
			}
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
	all := vmKeys()
	for _, key := range keys {
		v, ok := c[slices.Index(all[:], key)].Get()
		if !ok {
			return snapshot.Opt[uint64]{}
		}
		sum += v
	}
	return snapshot.Some(sum)
}

// numaProbe is what is kept of NUMA nodes between reads.
type numaProbe struct {
	follow bool
	// nodes are the IDs of the NUMA nodes that have memory; zones what their zones
	// keep free, and zonesError why that is unknown. They are read every numaReread:
	// they change with memory hot-plug and vm.min_free_kbytes only, and a host of many
	// CPUs prints some 100 KB of zones.
	nodes      []int
	zones      map[int]numaZones
	zonesError error
	hugetlb    map[int]uint64 // bytes reserved for huge pages, read as often
	nextRead   time.Duration
}

const numaReread = time.Minute

// numaZones are sums over the zones of one NUMA node, in bytes.
type numaZones struct{ low, reserve uint64 }

// FollowNUMA measures the memory of each NUMA node, and that of workloads there, from
// the next Read on; or not, which is the default. A host with one NUMA node has none
// to measure.
func (h *Host) FollowNUMA(on bool) {
	if on != h.numa.follow {
		h.numa = numaProbe{follow: on}
	}
}

// readNUMA reads the memory of each NUMA node, if there are several.
func (h *Host) readNUMA(s *snapshot.Sample) error {
	if err := h.findNUMA(s.Monotonic); err != nil {
		return err
	}
	if len(h.numa.nodes) < 2 {
		return nil
	}
	errs := make([]error, 0, 1)
	for _, id := range h.numa.nodes {
		n := snapshot.NUMANode{ID: id}
		if err := h.readNUMANode(&n); err != nil {
			errs = append(errs, err)
		}
		s.NUMANodes = append(s.NUMANodes, n)
	}
	if h.numa.zonesError != nil {
		errs = append(errs, h.numa.zonesError)
	}
	return oneLine(errs)
}

// findNUMA reads which NUMA nodes have memory, and their zones, if it is time.
func (h *Host) findNUMA(now time.Duration) error {
	if now < h.numa.nextRead {
		return nil
	}
	h.numa.nodes = nil
	b, err := os.ReadFile(filepath.Join(h.paths.Sysfs, "devices/system/node/has_memory"))
	switch {
	case errors.Is(err, fs.ErrNotExist): // a kernel without NUMA
		h.numa.nextRead = now + numaReread
		return nil
	case err != nil:
		return err
	}
	if h.numa.nodes, err = idList(strings.TrimSpace(string(b))); err != nil {
		return fmt.Errorf("has_memory: %w", err)
	}
	h.numa.nextRead = now + numaReread
	if len(h.numa.nodes) > 1 {
		h.numa.zones, h.numa.zonesError = h.readZones()
		h.numa.hugetlb = map[int]uint64{}
		for _, id := range h.numa.nodes {
			h.numa.hugetlb[id] = h.readHugetlb(id)
		}
	}
	return nil
}

// readHugetlb is what a NUMA node has reserved for huge pages of all sizes, in bytes; 0
// where the kernel has none.
func (h *Host) readHugetlb(id int) (bytes uint64) {
	pools, _ := filepath.Glob(filepath.Join(h.numaDir(id), "hugepages", "hugepages-*kB"))
	for _, pool := range pools {
		size, err1 := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(pool), "hugepages-"), "kB"), 10, 40)
		text, err2 := os.ReadFile(filepath.Join(pool, "nr_hugepages"))
		pages, err3 := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
		if errors.Join(err1, err2, err3) == nil && size*pages < maxKiB {
			bytes += size * pages << 10
		}
	}
	return bytes
}

func (h *Host) numaDir(id int) string {
	return filepath.Join(h.paths.Sysfs, "devices/system/node", "node"+strconv.Itoa(id))
}

func (h *Host) readZones() (map[int]numaZones, error) {
	b, err := os.ReadFile(filepath.Join(h.paths.Procfs, "zoneinfo"))
	if err != nil {
		return nil, err
	}
	zones, err := zonesOf(b, uint64(os.Getpagesize()))
	if err != nil {
		return nil, fmt.Errorf("zoneinfo: %w", err)
	}
	return zones, nil
}

// maxNUMANodes is the kernel's own bound (CONFIG_NODES_SHIFT up to 10).
const maxNUMANodes = 1024

// idList parses a list such as "0-1,8" (kernel cputopology.rst).
func idList(text string) ([]int, error) {
	var ids []int
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseUint(from, 10, 31)
		last := first
		if err == nil && isRange {
			last, err = strconv.ParseUint(to, 10, 31)
		}
		if err != nil || last < first || last >= maxNUMANodes || len(ids) > 0 && int(first) <= ids[len(ids)-1] {
			return nil, parse.LineError([]byte(text), errNoIDList)
		}
		for id := first; id <= last; id++ {
			ids = append(ids, int(id))
		}
	}
	return ids, nil
}

var errNoIDList = errors.New("not a list of NUMA nodes")

// readNUMANode reads nodeN/meminfo.
func (h *Host) readNUMANode(n *snapshot.NUMANode) error {
	b, err := os.ReadFile(filepath.Join(h.numaDir(n.ID), "meminfo"))
	if err != nil {
		n.Absent.Because("meminfo", err.Error())
		return err
	}
	m, err := numaMeminfo(b)
	if err != nil {
		n.Absent.Because("meminfo", err.Error())
		return fmt.Errorf("node%d/meminfo: %w", n.ID, err)
	}
	n.TotalBytes, n.FreeBytes = m["MemTotal"], m["MemFree"]
	if reserved := h.numa.hugetlb[n.ID]; reserved > 0 {
		n.HugetlbBytes = snapshot.Some(reserved)
	}
	for name, v := range map[string]snapshot.Opt[uint64]{"totalBytes": n.TotalBytes, "freeBytes": n.FreeBytes} {
		if v.IsZero() {
			n.Absent.Because(name, "not in meminfo of the NUMA node")
		}
	}
	h.setAvailable(n, m)
	return nil
}

// setAvailable computes what is available on a NUMA node from its memory and its zones.
func (h *Host) setAvailable(n *snapshot.NUMANode, m numaMemory) {
	zones, known := h.numa.zones[n.ID]
	switch {
	case h.numa.zonesError != nil:
		n.Absent.Because("availableBytes", h.numa.zonesError.Error())
		return
	case !known:
		n.Absent.Because("availableBytes", "the NUMA node has no zone in /proc/zoneinfo")
		return
	}
	n.ReserveBytes = snapshot.Some(zones.reserve)
	if n.AvailableBytes = m.available(zones); n.AvailableBytes.IsZero() {
		n.Absent.Because("availableBytes", "no MemFree, Active(file), Inactive(file) or SReclaimable in meminfo of the NUMA node")
	}
}

// numaMemory has the lines of nodeN/meminfo that are used, in bytes.
type numaMemory map[string]snapshot.Opt[uint64]

// numaMeminfo parses lines such as "Node 0 MemTotal:  16384 kB". A line that is used
// and has another form is an error: a thousandth of the available memory would evict
// pods.
func numaMeminfo(b []byte) (numaMemory, error) {
	found := numaMemory{"MemTotal": {}, "MemFree": {}, "Active(file)": {}, "Inactive(file)": {}, "SReclaimable": {}, "KReclaimable": {}}
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		b = rest
		_, after := parse.Field(line) // Node
		_, after = parse.Field(after) // its ID
		key, after := parse.Field(after)
		name := string(bytes.TrimSuffix(key, []byte{':'}))
		if _, used := found[name]; !used {
			continue
		}
		digits, after := parse.Field(after)
		unit, _ := parse.Field(after)
		n, err := parse.Uint(digits)
		switch {
		case err != nil:
			return nil, parse.LineError(line, err)
		case string(unit) != "kB" || !whole:
			return nil, parse.LineError(line, errNoUnit)
		case n > maxKiB:
			return nil, parse.LineError(line, parse.ErrTooLarge)
		}
		found[name] = snapshot.Some(n << 10)
	}
	return found, nil
}

// maxKiB keeps sums of some values in bytes below 2^64.
const maxKiB = 1 << 50

var errNoUnit = errors.New("without the unit kB")

// available is the kernel's MemAvailable for one NUMA node (si_mem_available): what is
// free beyond the reserve, and the file pages and the reclaimable kernel memory of which
// some must stay.
func (m numaMemory) available(zones numaZones) snapshot.Opt[uint64] {
	free, ok1 := m["MemFree"].Get()
	active, ok2 := m["Active(file)"].Get()
	inactive, ok3 := m["Inactive(file)"].Get()
	reclaimable, ok4 := m["KReclaimable"].Get()
	if !ok4 { // before 4.20
		reclaimable, ok4 = m["SReclaimable"].Get()
	}
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return snapshot.Opt[uint64]{}
	}
	files := active + inactive
	sum := free + files - min(files/2, zones.low) + reclaimable - min(reclaimable/2, zones.low)
	return snapshot.Some(sum - min(sum, zones.reserve))
}

// zone is one zone of /proc/zoneinfo, in pages.
type zone struct{ boost, low, high, managed, protection uint64 }

// withoutBoost is a watermark without what the kernel adds to it for a moment, after pages
// of different kinds were mixed in a block (vm.watermark_boost_factor). The kernel prints
// the watermarks with it and, unless it is old, the boost beside them.
func (z *zone) withoutBoost(watermark uint64) uint64 { return watermark - min(watermark, z.boost) }

// zonesOf parses /proc/zoneinfo: by NUMA node the low watermarks, and what the kernel
// keeps free there (as in calculate_totalreserve_pages).
func zonesOf(b []byte, page uint64) (map[int]numaZones, error) {
	sums := map[int]numaZones{}
	node, z, inZone := 0, zone{}, false
	add := func() {
		if inZone {
			s := sums[node]
			s.low += z.withoutBoost(z.low) * page
			s.reserve += min(z.managed, z.withoutBoost(z.high)+z.protection) * page
			sums[node] = s
		}
		z = zone{}
	}
	for line := range bytes.Lines(b) {
		line = bytes.TrimRight(line, "\n")
		key, rest := parse.Field(line)
		if string(key) == "Node" {
			add()
			id, _, isZone := bytes.Cut(rest, []byte(", zone"))
			n, err := parse.Uint(bytes.TrimSpace(id))
			if err != nil || !isZone || n >= maxNUMANodes {
				return nil, parse.LineError(line, errNoZone)
			}
			node, inZone = int(n), true
			continue
		}
		if err := z.line(string(key), rest); err != nil {
			return nil, parse.LineError(line, err)
		}
	}
	add()
	return sums, nil
}

var errNoZone = errors.New("not the head of a zone")

// maxPages keeps sums over zones in bytes below 2^64.
const maxPages = 1 << 40

// line takes over what is used of one line.
func (z *zone) line(key string, rest []byte) (err error) {
	number := func(to *uint64, field []byte) {
		var n uint64
		if n, err = parse.Uint(field); err == nil && n > maxPages {
			err = parse.ErrTooLarge
		}
		*to = max(*to, n)
	}
	value, _ := parse.Field(rest)
	switch key {
	case "boost":
		number(&z.boost, value)
	case "low":
		number(&z.low, value)
	case "high":
		number(&z.high, value)
	case "managed":
		number(&z.managed, value)
	case "protection:": // (0, 2966, 24076, 24076)
		for part := range bytes.SplitSeq(bytes.Trim(rest, " ()"), []byte(", ")) {
			if number(&z.protection, part); err != nil {
				return err
			}
		}
	}
	return err
}
