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
)

// TriggerSettings say when the kernel is to wake us.
type TriggerSettings struct {
	Enabled bool
	// Stall is how long at least one task must have waited within Window.
	Stall, Window time.Duration
	// Roots of workloads, as configured; none: where a kubelet puts its pods.
	Roots []string
}

// Triggers wakes somebody as soon as tasks of the node stall on memory or IO,
// by the kernel's PSI triggers (kernel Documentation/accounting/psi.rst). They
// are armed for the host and, in the hierarchy of cgroup v2, for the cgroup of
// all pods and those of the two lower QoS classes: each of these costs a kernel
// thread, so there are never more than 12. What comes later than this process,
// or goes and comes back, is found again within seconds.
type Triggers struct {
	Paths Paths
	// Settings are asked for every few seconds; a change arms everything anew.
	Settings func() TriggerSettings
	// Wake is called in Run's goroutine after triggers fired: it must not wait.
	Wake func()

	resources []string      // of which there are pressure files; nil: memory and io
	every     time.Duration // between two looks for what is not armed; 0: recheck

	// Of Run's goroutine alone.
	have  TriggerSettings
	dir   string // of the unified hierarchy
	armed []armed
	fired map[string]uint64

	state atomic.Pointer[TriggerState]
}

// armed is a trigger and its file, on which the kernel keeps it.
type armed struct {
	Trigger
	fd int
}

// recheck is how often it is looked whether what is not armed can be. A look
// at what is not there costs some twelve system calls.
const recheck = 5 * time.Second

// ProbeTriggers arms what can be armed, says what came of it, and lets go.
func ProbeTriggers(paths Paths, s TriggerSettings) *TriggerState {
	t := &Triggers{Paths: paths, Settings: func() TriggerSettings { return s }}
	defer t.disarm()
	return t.Arm()
}

// State as of now; nil before Arm. It never changes.
func (t *Triggers) State() *TriggerState { return t.state.Load() }

// Arm arms what can be armed and is not yet. Called before Run, the state is
// known when that starts.
func (t *Triggers) Arm() *TriggerState {
	if s := t.Settings(); !reflect.DeepEqual(s, t.have) {
		t.disarm()
		t.have = s
	}
	var absent Absent
	if t.have.Enabled {
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

// signalEnd makes fd readable when ctx is done, until the function it returns
// is called.
func signalEnd(ctx context.Context, fd int) (release func()) {
	signalled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(signalled)
		_, _ = unix.Write(fd, binary.NativeEndian.AppendUint64(nil, 1)) // a counter of 0 takes 1
	})
	return func() {
		if !stop() {
			<-signalled
		}
	}
}

// wait for triggers, the end, or as long as it is told to.
func (t *Triggers) wait(end int, most time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(end), Events: unix.POLLIN}}
	for _, a := range t.armed {
		fds = append(fds, unix.PollFd{Fd: int32(a.fd), Events: unix.POLLPRI})
	}
	if _, err := unix.Poll(fds, int(max(0, most.Milliseconds()+1))); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait for PSI triggers: %w", err)
	}
	t.take(fds[1:])
	return nil
}

// take looks at what poll said of each trigger. A cgroup that is gone, or whose
// PSI was switched off, is said to be in error and to have fired: it is let go,
// and armed anew when it is back.
func (t *Triggers) take(fds []unix.PollFd) {
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

func (t *Triggers) publish(absent Absent) *TriggerState {
	s := &TriggerState{Fired: maps.Clone(t.fired), Absent: maps.Clone(absent)}
	for _, a := range t.armed {
		s.Armed = append(s.Armed, a.Trigger)
	}
	t.state.Store(s)
	return s
}

// disarm closes everything: the kernel forgets a trigger with its file.
func (t *Triggers) disarm() {
	for _, a := range t.armed {
		_ = unix.Close(a.fd) // nothing was written that could be lost
	}
	t.armed, t.dir = nil, ""
}

// armMissing returns why something still is not armed.
func (t *Triggers) armMissing() Absent {
	var absent Absent
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
		fd, trigger, err := p.arm(t.have)
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
