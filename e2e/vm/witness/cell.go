package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/e2e/vm/rungs"
)

const (
	suffererAddress = "127.0.0.1:7701"
	culpritAddress  = "127.0.0.1:7702"
	// short is when a rung on memory is due: so little of it is available, the floor of
	// memory-stall, and reaction later.
	short    = 0.11
	reaction = 500 * time.Millisecond
	// fillTime is how long a load may take until memory is short.
	fillTime = 90 * time.Second
	// slow is when a thing has taken so long that where it waits is written down.
	slow = 300 * time.Millisecond
)

// cell runs one.
type cell struct {
	tree
	count    string
	watched  map[string]*series
	service  *exec.Cmd
	load     *exec.Cmd
	ended    map[string]chan struct{} // closed when the pod's program has ended
	pid      atomic.Int64             // of the culprit's program
	spans    []span
	stacks   map[string]map[string]int
	settings []setting
	record   rungs.Record
}

// span is the time of one phase, and what the culprit had done at its ends.
type span struct {
	name           string
	from, to       time.Time
	doneAt, doneBy float64
}

// runCell runs the cell that a file describes and writes what came of it.
func runCell(ctx context.Context, path string, out io.Writer) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var s rungs.Spec
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("stay in memory: %w", err)
	}
	c := &cell{
		tree: newTree(s), count: filepath.Join("/dev/shm", s.Name+".count"),
		watched: map[string]*series{}, ended: map[string]chan struct{}{}, stacks: map[string]map[string]int{},
		record: rungs.Record{Cell: s.Cell, Kernel: kernelVersion(), Date: time.Now().UTC().Format(time.DateOnly)},
	}
	err = errors.Join(c.prepare(), c.make())
	if err == nil {
		err = c.present()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EINVAL):
		c.record.Absent, err = err.Error(), nil
	case err == nil:
		err = c.run(ctx)
	}
	if err = errors.Join(err, c.end()); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(c.record)
}

func kernelVersion() string {
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(b))
}

// present tells whether the kernel has the files of the rung.
func (c *cell) present() error {
	settings, err := c.tree.settings(used{})
	for _, s := range settings {
		_, missing := os.Stat(s.path)
		err = errors.Join(err, missing)
	}
	return err
}

// run goes through the phases.
func (c *cell) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := c.serve(); err != nil {
		return err
	}
	since := time.Now()
	c.watch(ctx)
	c.phase("before")
	c.collect(c.Before)
	usedBefore, err := c.cpuUsed(culprit)
	if err != nil {
		return err
	}
	c.phase("under")
	if err := c.begin(ctx); err != nil {
		return err
	}
	c.untilDue()
	if err := c.set(usedBefore); err != nil {
		return err
	}
	c.collect(c.With)
	if c.Load != rungs.Eater { // it would have ended before it could be killed
		c.phase("after")
		if err := lift(c.settings); err != nil {
			return err
		}
		c.collect(c.After)
	}
	c.phase("kill")
	if err := c.killLoad(); err != nil {
		return err
	}
	c.phase("over")
	c.collect(c.Over)
	c.phase("")
	c.results(since)
	return nil
}

// phase ends the one before and begins the next.
func (c *cell) phase(name string) {
	now, done := time.Now(), c.done()
	if n := len(c.spans); n > 0 {
		c.spans[n-1].to, c.spans[n-1].doneBy = now, done
	}
	c.spans = append(c.spans, span{name: name, from: now, doneAt: done})
}

// serve starts the sufferer and waits until it has answered once.
func (c *cell) serve() (err error) {
	c.service, err = c.start(sufferer, 300, c.Witness, "serve", c.Dir, suffererAddress, strconv.Itoa(c.HashKiB))
	if err != nil {
		return err
	}
	c.ended[sufferer] = waited(c.service)
	client := &http.Client{Timeout: 5 * time.Second}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err = get(client, "http://"+suffererAddress+"/work"); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the sufferer does not answer: %w", err)
}

func waited(c *exec.Cmd) chan struct{} {
	ended := make(chan struct{})
	go func() {
		_ = c.Wait()
		close(ended)
	}()
	return ended
}

func (c *cell) begin(ctx context.Context) error {
	if c.Load == rungs.Calm {
		return nil
	}
	args := []string{"-count", c.count, "-listen", culpritAddress, "-lock", filepath.Join(c.Dir, "lock")}
	threads := strconv.Itoa(c.Threads)
	switch c.Load {
	case rungs.Eater:
		args = append(args, "-available", "-1", "-pace", "400")
	case rungs.Leak: // fast to 200 MiB above what is short, then slowly
		ahead := c.availableMiB() - int(short*float64(c.totalMiB())) - 200
		args = append(args, "-available", "-1", "-ahead", strconv.Itoa(max(1, ahead)), "-pace", "20")
	case rungs.Direct:
		args = append(args, "-work", "direct", "-dir", c.Dir, "-threads", threads)
	case rungs.Synced, rungs.Ordered:
		args = append(args, "-work", "synced", "-dir", c.Dir, "-threads", strconv.Itoa(max(1, c.Threads/4)))
	case rungs.CPU:
		args = append(args, "-work", "cpu", "-threads", "8")
	case rungs.Forks:
		args = append(args, "-work", "forks", "-threads", "16")
	default:
		return fmt.Errorf("no such load: %q", c.Load)
	}
	var err error
	if c.load, err = c.start(culprit, 900, c.Hog, args...); err != nil {
		return err
	}
	c.pid.Store(int64(c.load.Process.Pid))
	c.ended[culprit] = waited(c.load)
	go c.watched["culprit"].arrive(ctx, time.Second, probe("http://"+culpritAddress+"/live"))
	return nil
}

// watch begins everything that is measured outside the pods.
func (c *cell) watch(ctx context.Context) {
	for _, name := range []string{"requests", "probes", "culprit", "beat", "cmdline", "create", "fsync", "lock", "inode", "exec", "cgroup", "available"} {
		c.watched[name] = newSeries()
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: most}}
	go c.watched["requests"].arrive(ctx, 50*time.Millisecond, requests(client, "http://"+suffererAddress+"/work"))
	go c.watched["probes"].arrive(ctx, time.Second, probe("http://"+suffererAddress+"/live"))
	go c.watched["beat"].beat(ctx)
	const often = 200 * time.Millisecond
	for name, do := range map[string]func() error{
		"cmdline": c.cmdline, "create": c.create, "fsync": c.sync, "lock": c.flock, "inode": c.writeShared, "cgroup": c.readCgroup,
	} {
		go c.watched[name].repeat(ctx, often, func() (map[string]float64, bool) { return nil, do() == nil })
	}
	go c.watched["available"].repeat(ctx, often, func() (map[string]float64, bool) {
		return map[string]float64{"available": float64(c.availableMiB())}, true
	})
	go c.watched["exec"].repeat(ctx, time.Second, func() (map[string]float64, bool) {
		return nil, exec.Command("/bin/true").Run() == nil //nolint:noctx // how long it takes is what is measured
	})
}

// cmdline is what ps reads of the culprit: it wants the lock of its address space.
func (c *cell) cmdline() error {
	pid := c.pid.Load()
	if pid == 0 {
		return nil
	}
	_, err := os.ReadFile("/proc/" + strconv.FormatInt(pid, 10) + "/cmdline")
	return err
}

// create makes a file in the directory in which the culprit makes its own.
func (c *cell) create() error {
	name := filepath.Join(c.Dir, "common", "node")
	return errors.Join(os.WriteFile(name, nil, 0o600), os.Remove(name))
}

// sync writes a line that must be on the disk, as a kubelet's checkpoint.
func (c *cell) sync() error {
	f, err := os.OpenFile(filepath.Join(c.Dir, "node.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 512))
	return errors.Join(err, f.Sync(), f.Close())
}

// flock takes the lock that the culprit holds for each piece of its work.
func (c *cell) flock() error {
	f, err := os.OpenFile(filepath.Join(c.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_EX), f.Close())
}

// writeShared writes a byte to a file that the culprit writes as well.
func (c *cell) writeShared() error {
	name := map[string]string{rungs.Direct: "data", rungs.Synced: "synced0", rungs.Ordered: "synced0"}[c.Load]
	f, err := os.OpenFile(filepath.Join(c.Dir, name), os.O_WRONLY, 0)
	if name == "" || err != nil {
		return nil //nolint:nilerr // the culprit has not made it yet
	}
	_, err = f.WriteAt([]byte{1}, 0)
	return errors.Join(err, f.Close())
}

// readCgroup is what an agent reads of a pod.
func (c *cell) readCgroup() error {
	_, one := os.ReadFile(c.file("memory", culprit, "memory.stat"))
	_, other := os.ReadFile(c.file("memory", culprit, "cgroup.procs"))
	return errors.Join(one, other)
}

// done is what the culprit has done.
func (c *cell) done() float64 {
	b, err := os.ReadFile(c.count)
	if err != nil || len(b) < 8 {
		return 0
	}
	return float64(binary.NativeEndian.Uint64(b))
}

// untilDue waits until the rung is due: memory is short, or the load has lasted.
func (c *cell) untilDue() {
	if c.Load != rungs.Eater && c.Load != rungs.Leak {
		c.collect(c.Under)
		return
	}
	floor := int(short * float64(c.totalMiB()))
	for end := time.Now().Add(fillTime); c.availableMiB() > floor && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	c.collect(reaction)
}

// set sets the rung by what the culprit used while it had none.
func (c *cell) set(before time.Duration) error {
	under := c.spans[1]
	lasted := time.Since(under.from).Seconds()
	now, err := c.cpuUsed(culprit)
	if err != nil {
		return err
	}
	u := used{cpu: (now - before).Seconds() / lasted, request: c.numbers(c.spans[0].from, under.from).P50}
	switch c.Load {
	case rungs.Direct: // half of it in each direction
		u.disk = (c.done() - under.doneAt) / lasted / 2
	case rungs.Synced, rungs.Ordered:
		u.disk = (c.done() - under.doneAt) / lasted
	}
	if c.settings, err = c.tree.settings(u); err != nil {
		return err
	}
	c.phase("with")
	set, wrote, took, err := c.apply(c.settings)
	c.record.Set, c.record.Wrote, c.record.Took = set, milliseconds(wrote), milliseconds(took)
	return err
}

// collect waits, and notes meanwhile what has ended and where tasks wait.
func (c *cell) collect(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(min(250*time.Millisecond, time.Until(end))) {
		phase := c.spans[len(c.spans)-1].name
		c.noteEnds(phase)
		if phase == "with" {
			c.noteStacks()
		}
	}
}

func (c *cell) noteStacks() {
	for name, s := range c.watched {
		took, thread := s.late()
		switch {
		case took < slow:
		case name == "requests":
			stacksOf(c.service.Process.Pid, c.counts(sufferer))
		case name == "cmdline" || name == "create" || name == "fsync" || name == "lock" || name == "inode" || name == "cgroup":
			if at := stack(os.Getpid(), thread); at != "" {
				c.counts(name)[at]++
			}
		}
	}
	if c.load != nil {
		stacksOf(c.load.Process.Pid, c.counts(culprit))
	}
}

func (c *cell) counts(name string) map[string]int {
	if c.stacks[name] == nil {
		c.stacks[name] = map[string]int{}
	}
	return c.stacks[name]
}

// noteEnds notes the phase in which a pod's program was seen to have ended by itself.
func (c *cell) noteEnds(phase string) {
	if phase == "over" {
		return // it was killed
	}
	for pod, note := range map[string]*string{culprit: &c.record.Ended, sufferer: &c.record.SuffererEnded} {
		if ended := c.ended[pod]; ended != nil && *note == "" {
			select {
			case <-ended:
				*note = phase
			default:
			}
		}
	}
}

// killLoad sets the rung again where it is off, a second later kills the culprit, and looks how long
// it takes until nothing of it is left. One that does not end with the rung set is
// given five seconds, then the rung is taken off.
func (c *cell) killLoad() error {
	if c.load == nil || c.record.Ended != "" {
		return nil
	}
	if c.Load != rungs.Eater {
		if _, _, _, err := c.apply(c.settings); err != nil {
			return err
		}
		time.Sleep(time.Second)
	}
	begun := time.Now()
	for c.kill(culprit) > 0 {
		if time.Since(begun) > 5*time.Second && !c.record.KillFreed {
			c.record.KillFreed = true
			if err := lift(c.settings); err != nil {
				return err
			}
		}
		if time.Since(begun) > time.Minute {
			return errors.New("the culprit does not end")
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.record.Kill = milliseconds(time.Since(begun))
	return lift(c.settings)
}

// kill kills what runs in a pod, and tells how many that were.
func (c *cell) kill(pod string) int {
	all := c.processes(pod)
	for _, pid := range all {
		_ = unix.Kill(pid, unix.SIGKILL) // it has ended meanwhile
	}
	return len(all)
}

// results are the numbers of each phase.
func (c *cell) results(since time.Time) {
	for _, of := range c.spans {
		p := map[string]*rungs.Phase{
			"before": &c.record.Before, "under": &c.record.Under, "with": &c.record.With, "after": &c.record.After, "over": &c.record.Over,
		}[of.name]
		if p == nil {
			continue
		}
		*p = c.numbers(of.from, of.to)
		p.Rate = max(0, of.doneBy-of.doneAt) / c.unit() / p.Seconds
	}
	c.record.Stacks = map[string][]string{}
	for name, counts := range c.stacks {
		all := []string{}
		for at, n := range counts {
			all = append(all, fmt.Sprintf("%d × %s", n, at))
		}
		slices.SortFunc(all, func(a, b string) int { return counted(b) - counted(a) })
		c.record.Stacks[name] = all[:min(4, len(all))]
	}
	c.record.Said = kernelSaid(since)
}

func counted(s string) int {
	n, _ := strconv.Atoi(strings.Fields(s)[0])
	return n
}

// unit is what a count is divided by to be in the unit of its rate.
func (c *cell) unit() float64 {
	switch c.Load {
	case rungs.CPU:
		return 1e6 // ns in a ms
	case rungs.Forks:
		return 1
	}
	return 1 << 20
}

func (c *cell) numbers(from, to time.Time) rungs.Phase {
	p := rungs.Phase{Seconds: to.Sub(from).Seconds(), Parts: map[string]float64{}, Waits: map[string]float64{}}
	var all []float64
	parts := map[string][]float64{}
	for _, s := range c.watched["requests"].between(from, to) {
		all = append(all, milliseconds(s.took))
		for name, ms := range s.parts {
			parts[name] = append(parts[name], ms)
		}
	}
	p.Requests, p.P50, p.P99 = len(all), rungs.Quantile(all, 0.5), rungs.Quantile(all, 0.99)
	for name, values := range parts {
		p.Parts[name] = rungs.Quantile(values, 0.99)
	}
	p.Probes, p.Failed = failed(c.watched["probes"].between(from, to))
	p.CulpritProbes, p.CulpritFailed = failed(c.watched["culprit"].between(from, to))
	p.Available = c.totalMiB()
	for name, s := range c.watched {
		longest := s.longest(from, to)
		for _, one := range s.between(from, to) {
			if mib, is := one.parts["available"]; is {
				p.Available = min(p.Available, int(mib))
			}
		}
		switch name {
		case "beat":
			p.Gap = milliseconds(longest)
		case "requests", "probes", "culprit", "available":
		default:
			p.Waits[name] = milliseconds(longest)
		}
	}
	return p
}

func failed(all []sample) (n, bad int) {
	for _, s := range all {
		if !s.ok {
			bad++
		}
	}
	return len(all), bad
}

// kernelSaid is what the kernel logged since about tasks that it killed or that hung.
func kernelSaid(since time.Time) []string {
	out, err := exec.Command("dmesg", "--time-format", "iso").Output() //nolint:noctx // local
	if err != nil {
		return []string{err.Error()}
	}
	var said []string
	for line := range strings.Lines(string(out)) {
		at, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		when, err := time.Parse("2006-01-02T15:04:05,000000-07:00", at)
		if err != nil || when.Before(since) {
			continue
		}
		for _, part := range []string{"Killed process", "blocked for more than", "soft lockup", "rcu:", "stall"} {
			if strings.Contains(text, part) && len(said) < 6 {
				said = append(said, text)
			}
		}
	}
	return said
}

// end ends what still runs and removes the cgroups and files.
func (c *cell) end() error {
	_ = lift(c.settings) // most are off already
	for _, pod := range []string{culprit, sufferer} {
		c.kill(pod)
		if ended := c.ended[pod]; ended != nil {
			<-ended
		}
	}
	left, err := filepath.Glob(filepath.Join(c.Dir, "synced*"))
	inCommon, failed := filepath.Glob(filepath.Join(c.Dir, "common", "*"))
	for _, name := range append(append(left, inCommon...), c.count) {
		_ = os.Remove(name) // no count is made where there is no load
	}
	return errors.Join(err, failed, c.remove())
}
