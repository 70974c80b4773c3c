package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/drift"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// figures of both programs, sampled.
type figures struct {
	s    *soak
	all  []*drift.Figure
	file *os.File // a line for each sample
	said []string // what happened since the last
}

// newFigures are written to bin/soak.tsv as they come.
func (s *soak) newFigures() *figures {
	s.t.Helper()
	path := filepath.Join("..", "bin", "soak.tsv")
	require.NoError(s.t, os.MkdirAll(filepath.Dir(path), 0o755))
	file, err := os.Create(path)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, file.Close()) })
	f := &figures{s: s, file: file}
	for _, who := range []string{"agent", "controller"} {
		// What a garbage collector leaves lying is no growth.
		f.add(who+" RSS", "B", 4<<20)
		f.add(who+" fds, no live cgroup's", "", 2)
		f.add(who+" goroutines", "", 3)
		f.add(who+" metric series", "", 10)
		f.add(who+" Lease", "B", 256)
	}
	f.add("agent state but decisions", "B", 2<<10)
	f.add("agent decisions kept", "B", 256<<10) // two rings of two files: each by half of itself up and down
	names := []string{"seconds"}
	for _, figure := range f.all {
		names = append(names, figure.Name)
	}
	f.line(append(names, "event"))
	return f
}

// add a figure that may grow by so much in an hour.
func (f *figures) add(name, unit string, room float64) {
	f.all = append(f.all, &drift.Figure{Name: name, Unit: unit, Room: room})
}

func (f *figures) line(columns []string) {
	_, err := fmt.Fprintln(f.file, strings.Join(columns, "\t"))
	require.NoError(f.s.t, err)
}

// event stands in the line of the next sample.
func (f *figures) event(text string) { f.said = append(f.said, text) }

// sample all figures now.
func (f *figures) sample() {
	at := time.Since(f.s.begun)
	values := append(f.process(f.s.agent, lease.Namespace, f.s.node), f.process(f.s.controller, "plimsoll-system", "plimsoll-controller")...)
	all, decisions := stateBytes(f.s.state), stateBytes(filepath.Join(f.s.state, "decisions"))+stateBytes(filepath.Join(f.s.state, "evictions"))
	values = append(values, all-decisions, decisions)
	columns := []string{strconv.FormatFloat(at.Seconds(), 'f', 1, 64)}
	for i, figure := range f.all {
		figure.Add(at, values[i])
		columns = append(columns, strconv.FormatFloat(values[i], 'f', -1, 64))
	}
	f.line(append(columns, strings.Join(f.said, "; ")))
	f.said = nil
}

// process is what one holds, in the order of newFigures.
func (f *figures) process(a *agent, namespace, name string) []float64 {
	t := f.s.t
	held := a.holds(t)
	series := 0
	for line := range strings.Lines(a.mustGet("/metrics")) {
		if !strings.HasPrefix(line, "#") {
			series++
		}
	}
	l, err := f.s.c.Client.CoordinationV1().Leases(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	text, err := json.Marshal(l)
	require.NoError(t, err)
	return []float64{float64(held.rss), float64(fdsBesideCgroups(t, a.cmd.Process.Pid)), float64(held.goroutines), float64(series), float64(len(text))}
}

// fdsBesideCgroups of a process: all but those of cgroups that are there, of which
// there are as many as pods. One that outlives its cgroup counts.
func fdsBesideCgroups(t *testing.T, pid int) (n int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, fd := range fds {
		target, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if err != nil {
			continue // it was closed just now
		}
		if strings.HasPrefix(target, "/sys/fs/cgroup/") {
			if _, err := os.Stat(target); err == nil {
				continue
			}
		}
		n++
	}
	return n
}

// stateBytes are those of all files below a directory.
func stateBytes(dir string) (n float64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil { // else it was replaced just now
				n += float64(info.Size())
			}
		}
		return nil
	})
	return n
}

// last sample, for who waits.
func (f *figures) last() string {
	var words []string
	for _, figure := range f.all {
		l := figure.Line(0, f.s.length)
		words = append(words, fmt.Sprintf("%s %s", figure.Name, amount(figure, l.Last)))
	}
	return strings.Join(words, ", ")
}

// judge the second half; the table says how.
func (f *figures) judge() string {
	t := f.s.t
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "figure\tleast\tmean\tmost\tslope per hour\tgrowth\tbound\tseen from, per hour\t")
	var window time.Duration
	for _, figure := range f.all {
		l := figure.Line(f.s.length/2, f.s.length)
		window = l.Window
		verdict := "flat"
		if l.Grows(figure) {
			verdict = "GROWS"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", figure.Name, amount(figure, l.Least), amount(figure, l.Mean), amount(figure, l.Most),
			amount(figure, l.PerHour), amount(figure, l.Growth), amount(figure, l.Room(figure)), amount(figure, l.Seen(figure)), verdict)
		assert.False(t, l.Grows(figure), "%s grows by %s per hour", figure.Name, amount(figure, l.PerHour))
		assert.Greater(t, l.Samples, 10, figure.Name)
	}
	require.NoError(t, table.Flush())
	return fmt.Sprintf("%s, of which the last %s were judged (all samples: bin/soak.tsv); a leak slower than \"seen from\" is not seen by a soak of this length\n%s",
		f.s.length, window.Round(time.Second), text.String())
}

// amount with its unit.
func amount(f *drift.Figure, v float64) string {
	if f.Unit == "B" {
		switch size := max(v, -v); {
		case size >= 1<<20:
			return fmt.Sprintf("%.1f MiB", v/(1<<20))
		case size >= 10<<10:
			return fmt.Sprintf("%.1f KiB", v/(1<<10))
		}
		return fmt.Sprintf("%.0f B", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// gap between two renewals, as an idle machine would count it and by the watch.
type gap struct{ fair, watch time.Duration }

func (g gap) longer(other gap) gap { return gap{max(g.fair, other.fair), max(g.watch, other.watch)} }

// beatWatch measures how far apart the renewals of the agent's Lease come, as the
// API server tells them.
type beatWatch struct {
	stop          context.CancelFunc
	running       sync.WaitGroup
	renewals      chan metav1.MicroTime
	served        chan bool // whether the API server is
	steady, after gap
}

func (s *soak) watchBeats() *beatWatch {
	ctx, cancel := context.WithCancel(s.t.Context())
	b := &beatWatch{stop: cancel, renewals: make(chan metav1.MicroTime), served: make(chan bool)}
	b.running.Go(func() { s.renewalsUntil(ctx, b.renewals) })
	b.running.Go(func() { b.measure(ctx) })
	s.t.Cleanup(b.end)
	return b
}

func (b *beatWatch) end() { b.stop(); b.running.Wait() }

// down and up are said before the API server is killed, and when it is there again.
func (b *beatWatch) down() { b.served <- false }
func (b *beatWatch) up()   { b.served <- true }

// longest gaps, when it has ended: while the API server was there, and from when it
// was back until the next renewal.
func (b *beatWatch) longest() (steady, after gap) { return b.steady, b.after }

// renewalsUntil ctx ends, from watches that begin again when they break.
func (s *soak) renewalsUntil(ctx context.Context, to chan<- metav1.MicroTime) {
	one := metav1.ListOptions{FieldSelector: "metadata.name=" + s.node}
	for ; ctx.Err() == nil; wait(ctx, 50*time.Millisecond) {
		w, err := s.c.Client.CoordinationV1().Leases(lease.Namespace).Watch(ctx, one)
		if err != nil {
			continue // it is away
		}
		for e := range w.ResultChan() {
			if l, ok := e.Object.(*coordinationv1.Lease); ok && l.Spec.RenewTime != nil {
				select {
				case to <- *l.Spec.RenewTime:
				case <-ctx.Done():
				}
			}
		}
		w.Stop()
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func TestBeatThatStops(t *testing.T) {
	for _, served := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			b := &beatWatch{stop: cancel, renewals: make(chan metav1.MicroTime), served: make(chan bool)}
			b.running.Go(func() { b.measure(ctx) })
			b.renewals <- metav1.NowMicro()
			want := 10 * time.Second
			if !served {
				b.down()
				want = 0
			}
			time.Sleep(10 * time.Second)
			b.end()
			steady, after := b.longest()
			assert.Equal(t, want, steady.watch, "an API server that is away counts nothing")
			assert.Zero(t, after)
		})
	}
}

func (b *beatWatch) measure(ctx context.Context) {
	look := time.NewTicker(250 * time.Millisecond)
	defer look.Stop()
	var last metav1.MicroTime
	since, to := deadline.Start(), &b.steady
	for served := true; ; {
		select {
		case <-ctx.Done():
			if served { // what goes on counts too
				*to = to.longer(gap{since.Elapsed(), since.Passed()})
			}
			return
		case <-look.C:
			since.Elapsed() // the more often it is asked the more exact it is
			continue
		case served = <-b.served:
			if served {
				since, to = deadline.Start(), &b.after
			}
			continue
		case at := <-b.renewals:
			if at.Equal(&last) || !served {
				continue
			}
			last = at
		}
		*to = to.longer(gap{since.Elapsed(), since.Passed()})
		since, to = deadline.Start(), &b.steady
	}
}
