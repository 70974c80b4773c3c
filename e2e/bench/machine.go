package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/probes"
)

// size of a machine.
type size struct{ pods, cpus, disks, veths int }

// madeUp is a MADE-UP host: files of procfs and sysfs as a kernel prints them, for any
// number of CPUs, disks and veths, on a file system in memory.
type madeUp struct {
	size
	root string
	now  int
}

func newMachine(of size) (m *madeUp, err error) {
	at, _ := memoryDir()
	root, err := os.MkdirTemp(at, ownPrefix)
	if err != nil {
		return nil, err
	}
	m = &madeUp{size: of, root: root}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("made-up machine: %w", err), m.Close())
		}
	}()
	files := map[string]string{
		"proc/sys/kernel/random/boot_id": "00000000-0000-4000-8000-000000000000\n",
		"proc/1/net/snmp":                "Tcp: OutSegs RetransSegs\nTcp: 41744 28\n",
		"proc/1/net/netstat":             "TcpExt: ListenDrops\nTcpExt: 0\n",
		"proc/meminfo":                   "MemTotal: 527902720 kB\nMemFree: 327902720 kB\nMemAvailable: 427902720 kB\nInactive(file): 1024 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
		"sys/class/net/eth0/device/x":    "",
	}
	for i := range of.disks {
		dir := "sys/block/" + diskName(i) + "/"
		files[dir+"diskseq"], files[dir+"queue/rotational"] = fmt.Sprintln(i+1), "0\n"
		files[dir+"size"], files[dir+"removable"], files[dir+"slaves/.none"] = "1048576\n", "0\n", ""
	}
	for i, name := range m.nics() {
		dir := "sys/class/net/" + name + "/"
		files[dir+"ifindex"], files[dir+"iflink"], files[dir+"type"] = fmt.Sprintln(i+1), fmt.Sprintln(i+1001), "1\n"
		files[dir+"address"], files[dir+"carrier"], files[dir+"speed"] = fmt.Sprintf("02:00:00:00:%02x:%02x\n", i/256, i%256), "1\n", "10000\n"
	}
	for name, text := range files {
		if err := m.write(name, text); err != nil {
			return m, err
		}
	}
	for i := range of.disks {
		if err := os.Remove(filepath.Join(root, "sys/block", diskName(i), "slaves/.none")); err != nil {
			return m, err
		}
	}
	return m, m.tick()
}

func diskName(i int) string { return fmt.Sprintf("nvme%dn1", i) }

// nics are the names of the network devices.
func (m *madeUp) nics() []string {
	names := []string{"eth0"}
	for i := range m.veths {
		names = append(names, fmt.Sprintf("veth%08x", i))
	}
	return names
}

func (m *madeUp) write(name, text string) error {
	path := filepath.Join(m.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// tick lets all counters grow.
func (m *madeUp) tick() error {
	m.now++
	n := m.now
	var stat, softnet, disks, nics strings.Builder
	fmt.Fprintf(&stat, "cpu  %d 0 %d %d 0 0 0 0 0 0\n", 50*n*m.cpus, 10*n*m.cpus, 40*n*m.cpus)
	for i := range m.cpus {
		fmt.Fprintf(&stat, "cpu%d %d 0 %d %d 0 0 0 0 0 0\n", i, 50*n, 10*n, 40*n)
		fmt.Fprintf(&softnet, "%08x%s %08x 00000000 00000000\n", n, strings.Repeat(" 00000000", 11), i)
	}
	fmt.Fprintf(&stat, "intr %d%s\nctxt %d\nbtime 1700000000\n", n, strings.Repeat(" 0", 16*m.cpus), n)
	for i := range m.disks {
		fmt.Fprintf(&disks, " 259 %d %s %d 0 %d %d %d 0 %d %d 0 %d %d\n", i, diskName(i), 100*n, 800*n, 20*n, 50*n, 400*n, 10*n, 300*n, 30*n)
	}
	nics.WriteString("Inter-|   Receive\n face |bytes\n")
	for _, name := range m.nics() {
		fmt.Fprintf(&nics, "%s: %d %d 0 0 0 0 0 0 %d %d 0 0 0 0 0 0\n", name, 1000*n, 10*n, 2000*n, 20*n)
	}
	files := map[string]string{
		"proc/stat": stat.String(), "proc/net/softnet_stat": softnet.String(), "proc/diskstats": disks.String(), "proc/1/net/dev": nics.String(),
		"proc/vmstat": fmt.Sprintf("pgscan_direct 0\npgscan_kswapd 0\npgsteal_direct 0\npgsteal_kswapd 0\noom_kill 0\npswpin 0\npswpout 0\nworkingset_refault_anon %d\nworkingset_refault_file %d\n", n, n),
	}
	for _, resource := range []string{"cpu", "memory", "io"} {
		files["proc/pressure/"+resource] = fmt.Sprintf("some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n", 900*n, 900*n)
	}
	for name, text := range files {
		if err := m.write(name, text); err != nil {
			return err
		}
	}
	return nil
}

// Close removes the files.
func (m *madeUp) Close() error { return os.RemoveAll(m.root) }

// costOf is what a second of the agent takes on a made-up machine.
func costOf(ctx context.Context, o *options, of size) (took time.Duration, err error) {
	o.say("made-up machine: %d pods, %d CPUs, %d disks, %d veths", of.pods, of.cpus, of.disks, of.veths)
	m, err := newMachine(of)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	t, err := newTree(of.pods)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	host := probes.Paths{Procfs: filepath.Join(m.root, "proc"), Sysfs: filepath.Join(m.root, "sys")}
	s, err := measureSecond(ctx, o.ticks, host, t, m.tick, 35*time.Second)
	if err != nil {
		return 0, err
	}
	took, _, _, _, _ = s.all()
	return took, nil
}

// axis is one number of a machine that grows.
type axis struct {
	one   string
	sizes []int
	set   func(*size, int)
}

func axes(most int) []axis {
	return []axis{
		{"pod", []int{most / 4, most / 2, most}, func(s *size, n int) { s.pods = n }},
		{"CPU", []int{8, 32, 128}, func(s *size, n int) { s.cpus = n }},
		{"disk", []int{4, 16, 64}, func(s *size, n int) { s.disks = n }},
		{"veth", []int{10, 60, 250}, func(s *size, n int) { s.veths = n }},
	}
}

// largeMachines measures how the cost grows with the machine.
func largeMachines(ctx context.Context, o *options) (rows []Row, err error) {
	most := o.sizes[len(o.sizes)-1]
	base := size{pods: max(1, most/4), cpus: 8, disks: 4, veths: 10}
	known := map[size]time.Duration{}
	cost := func(of size) (time.Duration, error) {
		if took, measured := known[of]; measured {
			return took, nil
		}
		took, err := costOf(ctx, o, of)
		known[of] = took
		return took, err
	}
	largest := base
	for _, a := range axes(most) {
		var took []time.Duration
		for _, n := range a.sizes {
			of := base
			a.set(&of, n)
			a.set(&largest, n)
			d, err := cost(of)
			if err != nil {
				return rows, err
			}
			took = append(took, d)
		}
		rows = append(rows, a.row(took))
	}
	took, err := cost(largest)
	if err != nil {
		return rows, err
	}
	return append(rows, Row{
		What: fmt.Sprintf("a second of the agent, MADE-UP machine, %d pods, %d CPUs, %d disks, %d veths", largest.pods, largest.cpus, largest.disks, largest.veths),
		Ours: short(took),
	}), nil
}

// row is the slope of the cost, and how far it is from a line.
func (a axis) row(took []time.Duration) Row {
	slope, off := line(a.sizes, took)
	var shown []string
	for i, n := range a.sizes {
		shown = append(shown, fmt.Sprintf("%s at %d", short(took[i]), n))
	}
	return Row{
		What: "a second of the agent, MADE-UP machine, one more " + a.one,
		Ours: fmt.Sprintf("%s (%s)", short(max(0, slope)), strings.Join(shown, ", ")), Ratio: fmt.Sprintf("%.0f %% off a line", 100*off),
	}
}

// line is the slope of the line of least squares, and the largest distance from it as a share.
func line(at []int, took []time.Duration) (slope time.Duration, off float64) {
	n := float64(len(at))
	var x, y, xx, xy float64
	for i := range at {
		a, b := float64(at[i]), float64(took[i])
		x, y, xx, xy = x+a, y+b, xx+a*a, xy+a*b
	}
	d := n*xx - x*x
	if d == 0 {
		return 0, 0
	}
	by := (n*xy - x*y) / d
	for i := range at {
		fit := (y-by*x)/n + by*float64(at[i])
		off = max(off, math.Abs(float64(took[i])-fit)/fit)
	}
	return time.Duration(by), off
}
