package probes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// TriggerSettings configure the PSI triggers.
type TriggerSettings struct {
	Enabled bool
	// Stall is how long at least one task must have waited within Window.
	Stall, Window time.Duration
	// Roots of workloads, as configured; empty: the kubelet's cgroups of pods.
	Roots []string
}

// Triggers calls Wake as soon as tasks of the node stall on memory or IO, by
// the kernel's PSI triggers (kernel Documentation/accounting/psi.rst). They are
// armed for the host and, with cgroup v2, for the cgroup of all pods and those
// of the two lower QoS classes. Each of these costs a kernel thread, so there
// are at most 12. A cgroup that appears later, or is re-created, is found
// within seconds.
type Triggers struct {
	Paths Paths
	// Settings is called every few seconds; a change re-arms everything.
	Settings func() TriggerSettings
	// Wake is called in Run's goroutine after triggers fired; it must not
	// block.
	Wake func()

	resources []string      // names of the pressure files; nil: memory and io
	every     time.Duration // how often to try what is not armed; 0: recheck

	// Used by Run's goroutine only.
	current TriggerSettings
	dir     string // of the unified hierarchy
	armed   []armed
	fired   map[string]uint64

	state atomic.Pointer[TriggerState]
}

// armed is a trigger and the open file that keeps it alive in the kernel.
type armed struct {
	Trigger
	fd int
}

// recheck is how often unarmed triggers are tried again. One attempt costs some
// twelve system calls.
const recheck = 5 * time.Second

// ProbeTriggers arms what can be armed, returns the result, and disarms.
func ProbeTriggers(paths Paths, s TriggerSettings) *TriggerState {
	t := &Triggers{Paths: paths, Settings: func() TriggerSettings { return s }}
	defer t.disarm()
	return t.Arm()
}

// State returns the current state; nil before Arm. It never changes.
func (t *Triggers) State() *TriggerState { return t.state.Load() }

// Arm arms the triggers that can be armed and are not yet. Called before Run,
// it makes the state known when Run starts.
func (t *Triggers) Arm() *TriggerState {
	if s := t.Settings(); !reflect.DeepEqual(s, t.current) {
		t.disarm()
		t.current = s
	}
	var absent snapshot.Absent
	if t.current.Enabled {
		absent = t.armMissing()
	}
	return t.publish(absent)
}

// Run waits for triggers until ctx is done, in one goroutine for all of them,
// and disarms them.
func (t *Triggers) Run(ctx context.Context) error {
	defer func() {
		t.disarm()
		t.publish(nil)
	}()
	end, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("wait for PSI triggers: eventfd: %w", err)
	}
	defer func() { _ = unix.Close(end) }() // its one write is in signalEnd
	defer signalEnd(ctx, end)()
	every := t.every
	if every == 0 {
		every = recheck
	}
	if t.State() == nil {
		t.Arm()
	}
	for next := time.Now().Add(every); ctx.Err() == nil; {
		if err := t.wait(end, time.Until(next)); err != nil {
			return err
		}
		if !time.Now().Before(next) {
			t.Arm()
			next = time.Now().Add(every)
		}
	}
	return nil
}

// signalEnd makes fd readable when ctx is done. release stops that and waits
// for the write.
func signalEnd(ctx context.Context, fd int) (release func()) {
	signalled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(signalled)
		_, _ = unix.Write(fd, binary.NativeEndian.AppendUint64(nil, 1)) // an eventfd counter of 0 accepts 1
	})
	return func() {
		if !stop() {
			<-signalled
		}
	}
}

// wait blocks until a trigger fires, the end, or the timeout.
func (t *Triggers) wait(end int, most time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(end), Events: unix.POLLIN}}
	for _, a := range t.armed {
		fds = append(fds, unix.PollFd{Fd: int32(a.fd), Events: unix.POLLPRI})
	}
	if _, err := unix.Poll(fds, int(max(0, most.Milliseconds()+1))); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait for PSI triggers: %w", err)
	}
	t.handle(fds[1:])
	return nil
}

// handle handles the result of poll for each trigger. The kernel reports a cgroup
// that is removed, or whose PSI is switched off, as an error and as fired: its
// trigger is dropped, and armed again when it is back.
func (t *Triggers) handle(fds []unix.PollFd) {
	fired, lost := 0, 0
	var kept []armed
	for i, fd := range fds {
		a := t.armed[i]
		if fd.Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0 {
			_ = unix.Close(a.fd) // nothing was written that could be lost
			lost++
			continue
		}
		if fd.Revents&unix.POLLPRI != 0 {
			t.count(a.Resource, 1)
			fired++
		}
		kept = append(kept, a)
	}
	t.armed = kept
	if fired+lost > 0 {
		t.publish(t.State().Absent)
	}
	if fired > 0 {
		t.Wake()
	}
}

func (t *Triggers) count(resource string, fired uint64) {
	if t.fired == nil {
		t.fired = map[string]uint64{}
	}
	t.fired[resource] += fired
}

func (t *Triggers) publish(absent snapshot.Absent) *TriggerState {
	s := &TriggerState{Fired: maps.Clone(t.fired), Absent: maps.Clone(absent)}
	for _, a := range t.armed {
		s.Armed = append(s.Armed, a.Trigger)
	}
	t.state.Store(s)
	return s
}

// disarm closes all files; the kernel removes a trigger with its file.
func (t *Triggers) disarm() {
	for _, a := range t.armed {
		_ = unix.Close(a.fd) // nothing was written that could be lost
	}
	t.armed, t.dir = nil, ""
}

// armMissing arms what is not armed, and returns the reasons for what still is
// not.
func (t *Triggers) armMissing() snapshot.Absent {
	var absent snapshot.Absent
	groups := map[string]bool{}
	for _, a := range t.armed {
		groups[a.Cgroup] = true
	}
	for _, p := range t.places() {
		if slices.ContainsFunc(t.armed, p.holds) {
			continue
		}
		if !groups[p.cgroup] && len(groups) >= maxTriggerGroups {
			absent.Because(p.String(), whyTooManyTriggers)
			continue
		}
		fd, trigger, err := p.arm(t.current)
		if err == nil {
			t.armed = append(t.armed, armed{trigger, fd})
			t.count(p.resource, 0)
			groups[p.cgroup] = true
		} else if why := p.reason(err); why != "" {
			absent.Because(p.String(), why)
		}
	}
	return absent
}
