package web

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// pageProcesses are the processes of a workload, or why there are none.
type pageProcesses struct {
	Shown, Folded []processRow
	Summary       string
	Unread        []string
	Problem       string // instead of all others, why none was read
}

type processRow struct {
	PID                           int
	Command                       string
	CPU, RSS, Swap, Read, Written cell
	rate, resident                float64
}

const (
	// turnTimeout bounds how long a page waits for another reading to end.
	turnTimeout = 3 * time.Second
	// processesTimeout bounds one reading, in which a file of /proc may hang; the reader
	// then has a partial list, for which the page waits processesMargin longer.
	processesTimeout = 3 * time.Second
	processesMargin  = 500 * time.Millisecond
	// processesShown are not folded.
	processesShown = 20
)

// turns lets one reading of processes run at a time.
type turns struct {
	once sync.Once
	one  chan struct{}
}

func (t *turns) turn() chan struct{} {
	t.once.Do(func() { t.one = make(chan struct{}, 1) })
	return t.one
}

// processReader is Server.Processes.
type processReader func(ctx context.Context, cgroup string) (probes.ProcessList, error)

// read reads the processes of a workload; nil without a reader. One reading runs at a
// time: what a client opens must not cost the node more than that. A reading that hangs
// holds the place until it ends.
func (t *turns) read(ctx context.Context, of processReader, cgroup string) *pageProcesses {
	if of == nil {
		return nil
	}
	turn, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	select {
	case t.turn() <- struct{}{}:
	case <-turn.Done():
		return &pageProcesses{Problem: "Not read: another reading has not ended. Read this page again in some seconds."}
	}
	type result struct {
		list probes.ProcessList
		err  error
	}
	page, cancel := context.WithTimeout(ctx, processesTimeout+processesMargin)
	defer cancel()
	done := make(chan result, 1)
	go func() {
		defer func() { <-t.turn() }()
		reader, cancel := context.WithTimeout(page, processesTimeout)
		defer cancel()
		list, err := of(reader, cgroup)
		done <- result{list, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return &pageProcesses{Problem: "Not read: " + view.Printable(r.err.Error())}
		}
		return newPageProcesses(&r.list)
	case <-page.Done():
		return &pageProcesses{Problem: "Not read: /proc did not answer within " + view.Seconds((processesTimeout + processesMargin).Seconds()) + "."}
	}
}

func newPageProcesses(l *probes.ProcessList) *pageProcesses {
	p := &pageProcesses{Summary: countOf(l.Found, "process", "processes") + " found, " + view.Count(uint64(len(l.Processes))) + " read"}
	if l.Seconds > 0 {
		p.Summary += "; rates over " + view.Seconds(l.Seconds)
	}
	for _, u := range l.Unread {
		p.Unread = append(p.Unread, view.Count(uint64(u.Count))+" not read: "+view.Printable(u.Why))
	}
	if l.Problem != "" {
		p.Unread = append(p.Unread, "There may be more: "+view.Printable(l.Problem))
	}
	rows := make([]processRow, 0, len(l.Processes))
	for i := range l.Processes {
		rows = append(rows, newProcessRow(&l.Processes[i]))
	}
	slices.SortStableFunc(rows, func(a, b processRow) int {
		return cmp.Or(cmp.Compare(b.rate, a.rate), cmp.Compare(b.resident, a.resident))
	})
	p.Shown, p.Folded = rows[:min(len(rows), processesShown)], rows[min(len(rows), processesShown):]
	return p
}

// newProcessRow is a process; the busiest on disks come first, and of those without IO the
// largest.
func newProcessRow(p *probes.Process) processRow {
	size := wholeNumber(view.Bytes)
	read, _ := p.ReadBytesPerSecond.Get()
	written, _ := p.WrittenBytesPerSecond.Get()
	resident, _ := p.RSSBytes.Get()
	return processRow{
		PID: p.PID, Command: view.Clip(p.Command), rate: read + written, resident: float64(resident),
		CPU: cellOf(p.CPUCores, view.Number, p.Absent, "rates"),
		RSS: cellOf(p.RSSBytes, size, p.Absent, "status"), Swap: cellOf(p.SwapBytes, size, p.Absent, "status"),
		Read: cellOf(p.ReadBytesPerSecond, view.ByteRate, p.Absent, "io", "rates"), Written: cellOf(p.WrittenBytesPerSecond, view.ByteRate, p.Absent, "io", "rates"),
	}
}

// NoIO is why no process has IO rates, where all lack them for the same reason.
func (p *pageProcesses) NoIO() string {
	why := ""
	for _, r := range slices.Concat(p.Shown, p.Folded) {
		if r.Read.Why == "" || why != "" && why != r.Read.Why {
			return ""
		}
		why = r.Read.Why
	}
	return why
}
