package main

import (
	"context"
	"errors"
	"os"
	"slices"
)

// The sections, by the names that -only knows.
const (
	secRecorded = "recorded" // pods on a recorded tree
	secNative   = "native"   // pods on this host's cgroups
	secSecond   = "second"   // an agent's second by stage
	secLarge    = "large"    // how its cost grows, on made-up machines
	secHost     = "host"
	secText     = "text"
	secLoads    = "loads" // decisions about Velero's loads
	secOuter    = "outer" // rounds of outer plugins
	secControl  = "controller"
	secAgent    = "agent"
	secPeers    = "peers"
	secCluster  = "cluster"
)

func sectionNames() []string {
	return []string{"pods", secRecorded, secNative, secSecond, secLarge, secHost, secText, secLoads, secOuter, secControl, secAgent, secPeers, secCluster}
}

// wants says whether a section is to be run; pods is two of them.
func (o *options) wants(name string) bool {
	if name == secRecorded || name == secNative {
		if slices.Contains(o.only, "pods") {
			return true
		}
	}
	return len(o.only) == 0 || slices.Contains(o.only, name)
}

// measure runs the sections.
func (b *bench) measure(ctx context.Context) {
	for _, s := range []struct {
		name string
		run  func(context.Context, *options) ([]Row, error)
	}{{secRecorded, recordedPods}, {secSecond, agentSecond}, {secLarge, largeMachines}, {secHost, hostSample}, {secText, metricsText}, {secLoads, loadDecisions}, {secOuter, outerRounds}, {secControl, controllerCPU}} {
		if b.wants(s.name) && ctx.Err() == nil {
			rows, err := s.run(ctx, &b.options)
			b.section(s.name, rows, err)
		}
	}
	if b.wants(secNative) || b.wants(secAgent) || b.wants(secPeers) {
		b.onThisHost(ctx)
	}
	if b.wants(secCluster) && ctx.Err() == nil {
		b.needingRoot(secCluster, func() error {
			rows, err := inCluster(ctx, &b.options)
			b.section(secCluster, rows, err)
			return nil
		})
	}
}

// needingRoot says in the table what is left out without root's rights, which
// is no failure.
func (b *bench) needingRoot(what string, run func() error) {
	if os.Geteuid() != 0 {
		b.table = append(b.table, Unmeasured(what, errors.New("needs root: pods get real cgroups")))
		return
	}
	if err := run(); err != nil {
		b.section(what, nil, err)
	}
}

// onThisHost makes more and more pods and measures at each number of them.
func (b *bench) onThisHost(ctx context.Context) {
	b.needingRoot("on this host's cgroups", func() (err error) {
		w, err := newWorld(b.load)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.Close()) }()
		allocs := map[int]uint64{}
		for _, n := range b.sizes {
			if err := b.withPods(ctx, w, n, allocs); err != nil {
				return err
			}
		}
		if b.wants(secNative) && ctx.Err() == nil {
			b.section(secNative, allocationRows(b.sizes, w.place().what, allocs), nil)
		}
		return ctx.Err()
	})
}

// withPods measures when there are n pods, busy and idle.
func (b *bench) withPods(ctx context.Context, w *world, n int, allocs map[int]uint64) error {
	b.say("making %s", podCount(n))
	if err := w.grow(ctx, n); err != nil {
		return err
	}
	for _, every := range paces(n) {
		if err := w.work(ctx, every); err != nil {
			return err
		}
		b.atSize(ctx, w, every, allocs)
	}
	return nil
}

// peersAt is the number of pods at which the peers' programs are measured.
const peersAt = 250

// atSize measures with the pods there are and as busy as they are.
func (b *bench) atSize(ctx context.Context, w *world, every int, allocs map[int]uint64) {
	if b.wants(secNative) && ctx.Err() == nil {
		rows, err := nativePods(ctx, &b.options, w, every, allocs)
		b.section(secNative, rows, err)
	}
	var ours window
	if b.wants(secAgent) && ctx.Err() == nil && len(w.pods) > 1 {
		rows, used, err := wholeAgent(ctx, &b.options, w, every)
		ours = used
		b.section(secAgent, rows, err)
	}
	if b.wants(secPeers) && ctx.Err() == nil && len(w.pods) == peersAt && every == busy {
		for _, peer := range []func(context.Context, *options, *world, window) ([]Row, error){nodeExporter, cAdvisor} {
			rows, err := peer(ctx, &b.options, w, ours)
			b.section(secPeers, rows, err)
		}
	}
}
