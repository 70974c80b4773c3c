package probes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/cgroup"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// MaxProcesses is how many processes of a workload are read at most.
const MaxProcesses = 256

// ProcessList is what the processes of one workload use. It is read when a person asks
// for it and belongs to no Sample.
type ProcessList struct {
	// Processes that were read, in the order of their IDs.
	Processes []Process
	// Found is how many the workload has, those that were not read included.
	Found int
	// Unread are those that were not read, by reason.
	Unread []UnreadProcesses
	// Seconds between the two readings that rates are from; 0: no rates.
	Seconds float64
	// Problem is why more processes may be missing.
	Problem string
}

// UnreadProcesses is a number of processes that were not read.
type UnreadProcesses struct {
	Count int
	Why   string
}

// Process is one process of a workload.
type Process struct {
	PID int
	// Command is its comm: what the process calls itself, in 15 bytes (63 for a thread
	// of the kernel), without arguments. Any process may choose any.
	Command string
	Threads int
	// RSSBytes is VmRSS of /proc/PID/status, SwapBytes VmSwap.
	RSSBytes, SwapBytes snapshot.Opt[uint64]
	CPUCores            snapshot.Opt[float64]
	// Of /proc/PID/io what reached a disk, as read_bytes and write_bytes have it. Reads
	// and writes of terminals and pipes are left out: their lengths tell what is typed.
	ReadBytesPerSecond, WrittenBytesPerSecond snapshot.Opt[float64]
	// Absent is why status, io or rates are missing.
	Absent snapshot.Absent

	identity uint64 // its start, in ticks since boot
	at       time.Time
	cpu      float64 // seconds
	io       snapshot.Opt[procfs.ProcIO]
}

// ReadProcesses reads the processes in a workload's cgroup and below it, twice for rates,
// so that it takes interval and more. It reads at most MaxProcesses, chosen at random,
// until ctx ends; the cgroup must be one that the probes found, never one that a client
// names.
func ReadProcesses(ctx context.Context, paths Paths, workload string, interval time.Duration) (ProcessList, error) {
	proc, err := procfs.NewFS(paths.Procfs)
	if err != nil {
		return ProcessList{}, fmt.Errorf("procfs %s: %w", paths.Procfs, err)
	}
	own, err := ofOwnNamespace(proc)
	if err != nil {
		return ProcessList{}, fmt.Errorf("PID namespace of %s: %w", paths.Procfs, err)
	}
	pids, foreign, problem := cgroup.Members(ctx, paths.Procfs, paths.Cgroupfs, workload)
	if problem != nil && len(pids)+foreign == 0 {
		return ProcessList{}, fmt.Errorf("processes of %s: %w", workload, problem)
	}
	list := ProcessList{Found: len(pids) + foreign}
	if !own {
		pids, foreign = nil, list.Found
	}
	if problem != nil {
		list.Problem = problem.Error()
	}
	list.unread(foreign, "of another PID namespace than the agent's: it needs hostPID")
	chosen := choose(pids)
	list.unread(len(pids)-len(chosen), fmt.Sprintf("more than %d: chosen at random, other ones each time", MaxProcesses))
	first := list.readAll(ctx, proc, chosen)
	list.Processes = first
	if pause(ctx, interval) != nil || len(first) == 0 {
		for i := range first {
			first[i].Absent.Because("rates", "the time was too short for a second reading")
		}
		return list, nil
	}
	still, _, _ := cgroup.Members(ctx, paths.Procfs, paths.Cgroupfs, workload) // an ID may have passed to another process
	list.Processes = list.rates(ctx, proc, first, still)
	return list, nil
}

// ofOwnNamespace reports that a procfs has the IDs of this process's own PID namespace, as
// cgroup.procs has. In a procfs of the host the same ID is another process. NSpid has the IDs
// of this process from the procfs's namespace down to its own.
func ofOwnNamespace(proc procfs.FS) (bool, error) {
	self, err := proc.Self()
	if err != nil {
		return false, err
	}
	status, err := self.NewStatus()
	if err != nil {
		return false, err
	}
	return self.PID == os.Getpid() && len(status.NSpids) <= 1, nil // none before Linux 4.1
}

func (l *ProcessList) unread(count int, why string) {
	if count > 0 {
		l.Unread = append(l.Unread, UnreadProcesses{count, why})
	}
}

// choose takes MaxProcesses at random: many processes cannot hide one for ever.
func choose(pids []int) []int {
	chosen := slices.Clone(pids)
	if len(chosen) > MaxProcesses {
		rand.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		chosen = chosen[:MaxProcesses]
		slices.Sort(chosen)
	}
	return chosen
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// readAll reads processes once. What cannot be read at all is counted by its reason.
func (l *ProcessList) readAll(ctx context.Context, proc procfs.FS, pids []int) []Process {
	list := make([]Process, 0, len(pids))
	why := map[string]int{}
	for _, pid := range pids {
		if ctx.Err() != nil {
			why["the time limit was reached"]++
			continue
		}
		p, err := readProcess(proc, pid)
		if err != nil {
			why[reasonOf(err)]++
			continue
		}
		list = append(list, p)
	}
	reasons := make([]string, 0, len(why))
	for reason := range why {
		reasons = append(reasons, reason)
	}
	slices.SortFunc(reasons, func(a, b string) int { return cmp.Or(cmp.Compare(why[b], why[a]), cmp.Compare(a, b)) })
	for _, reason := range reasons {
		l.unread(why[reason], reason)
	}
	return list
}

// readProcess fails where not even stat can be read.
func readProcess(proc procfs.FS, pid int) (Process, error) {
	of, err := proc.Proc(pid)
	if err != nil {
		return Process{}, err
	}
	stat, err := of.Stat()
	if err != nil {
		return Process{}, err
	}
	p := Process{PID: pid, Command: stat.Comm, Threads: stat.NumThreads, identity: stat.Starttime, at: time.Now(), cpu: stat.CPUTime()}
	if status, err := of.NewStatus(); err != nil {
		p.Absent.Because("status", reasonOf(err))
	} else {
		p.RSSBytes, p.SwapBytes = snapshot.Some(status.VmRSS), snapshot.Some(status.VmSwap)
	}
	if io, err := of.IO(); err != nil {
		p.Absent.Because("io", reasonOf(err))
	} else {
		p.io = snapshot.Some(io)
	}
	return p, nil
}

// reasonOf an error of a file of a process.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EPERM):
		return "permission denied: it needs CAP_SYS_PTRACE"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return "ended, or hidden from the agent (hidepid)"
	}
	return err.Error()
}

// rates reads the processes again; those that ended are counted as not read.
func (l *ProcessList) rates(ctx context.Context, proc procfs.FS, first []Process, still []int) []Process {
	var sum float64
	list := make([]Process, 0, len(first))
	for _, was := range first {
		if ctx.Err() != nil {
			was.Absent.Because("rates", "the time was too short for a second reading")
			list = append(list, was)
			continue
		}
		is, err := readProcess(proc, was.PID)
		if _, member := slices.BinarySearch(still, was.PID); err != nil || !member || is.identity != was.identity {
			l.ended()
			continue
		}
		is.rate(&was)
		sum += is.at.Sub(was.at).Seconds()
		list = append(list, is)
	}
	if len(list) > 0 {
		l.Seconds = sum / float64(len(list))
	}
	return list
}

func (l *ProcessList) ended() {
	const why = "ended, or left the workload, while they were read"
	for i := range l.Unread {
		if l.Unread[i].Why == why {
			l.Unread[i].Count++
			return
		}
	}
	l.unread(1, why)
}

// rate sets what the process used since the first reading.
func (p *Process) rate(was *Process) {
	seconds := p.at.Sub(was.at).Seconds()
	if seconds <= 0 {
		p.Absent.Because("rates", "no time passed between the readings")
		return
	}
	p.CPUCores = snapshot.Some(max(0, p.cpu-was.cpu) / seconds)
	now, is := p.io.Get()
	if !is {
		return // Absent has the reason
	}
	before, had := was.io.Get()
	if !had || now.ReadBytes < before.ReadBytes || now.WriteBytes < before.WriteBytes {
		p.Absent.Because("io", "it was not read twice")
		return
	}
	p.ReadBytesPerSecond = snapshot.Some(float64(now.ReadBytes-before.ReadBytes) / seconds)
	p.WrittenBytesPerSecond = snapshot.Some(float64(now.WriteBytes-before.WriteBytes) / seconds)
}
