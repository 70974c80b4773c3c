package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
)

// nativeStep is how long the pods work between two ticks: a little more than
// the period of a load.
const nativeStep = 210 * time.Millisecond

// nativePods measures the sampling of as many pods as the world has.
func nativePods(ctx context.Context, o *options, w *world, every int, allocs map[int]uint64) ([]Row, error) {
	o.say("this host's cgroups: %s, %s", podCount(len(w.pods)), pace(every))
	p := w.place()
	rows, count, err := samplePods(ctx, p, every, o.ticks)
	if every == busy && err == nil {
		allocs[len(w.pods)] = count
	}
	return rows, err
}

func (w *world) place() place {
	p := place{
		what: "pods, this host's cgroups (" + w.flavour() + ")", roots: []string{w.kubepods()}, pods: len(w.pods),
		five: func(i int) []string { return w.pods[i].five() },
		between: func(ctx context.Context, _ int) error {
			return wait(ctx, nativeStep)
		},
	}
	for _, dir := range w.own.child("pods/kubepods").Dirs() {
		p.dirs = append(p.dirs, dirsBelow(dir)...)
	}
	if w.flavour() == "v2" {
		p.peers = []peer{{name: "cgroup2 StatFiltered(cpu, memory, io)", goal: 10, setUp: w.cgroup2}}
	} else {
		p.peers = []peer{{name: "cgroup1 Stat", setUp: w.cgroup1}}
	}
	return p
}

// flavour is v1, v2 or hybrid.
func (w *world) flavour() string {
	v2, v1 := false, false
	for _, h := range w.own.Hierarchies {
		v2, v1 = v2 || h.V2, v1 || !h.V2
	}
	switch {
	case v1 && v2:
		return "hybrid"
	case v1:
		return "v1"
	}
	return "v2"
}

// five are the files that the goal names, or what v1 has in their place.
func (g group) five() []string {
	if g.In("memory") == g.In("no controller of v1") {
		return g.files("", "cpu.stat", "memory.current", "memory.pressure", "io.stat", "io.pressure")
	}
	all := append(g.files("cpuacct", "cpuacct.usage"), g.files("memory", "memory.usage_in_bytes")...)
	all = append(all, g.files("blkio", "blkio.throttle.io_service_bytes_recursive")...)
	return append(all, g.files("", "memory.pressure", "io.pressure")...)
}

func (g group) files(controller string, names ...string) []string {
	dir := g.In(controller)
	if dir == "" {
		return nil
	}
	var all []string
	for _, name := range names {
		all = append(all, filepath.Join(dir, name))
	}
	return all
}

func (w *world) cgroup1(i int) (func() error, error) {
	c, err := cgroup1.Load(cgroup1.StaticPath(w.pods[i].Path))
	return func() error {
		_, err := c.Stat(cgroup1.IgnoreNotExist)
		return err
	}, err
}

func (w *world) cgroup2(i int) (func() error, error) {
	m, err := cgroup2.Load(w.pods[i].Path)
	return func() error {
		_, err := m.StatFiltered(cgroup2.StatCPU | cgroup2.StatMemory | cgroup2.StatIO)
		return err
	}, err
}
