package main

import (
	"context"
	"errors"

	"github.com/containerd/cgroups/v3/cgroup2"
)

// recordedPods measures the sampling of pods on the recorded tree.
func recordedPods(ctx context.Context, o *options) ([]Row, error) {
	var rows []Row
	allocs := map[int]uint64{}
	what := ""
	for _, n := range o.sizes {
		for _, every := range paces(n) {
			o.say("recorded tree: %s, %s", podCount(n), pace(every))
			more, count, name, err := recordedTree(ctx, o, n, every)
			if err != nil {
				return rows, err
			}
			rows, what = append(rows, more...), name
			if every == busy {
				allocs[n] = count
			}
		}
	}
	return append(rows, allocationRows(o.sizes, what, allocs)...), nil
}

// allocationRows compares the two largest sizes.
func allocationRows(sizes []int, what string, allocs map[int]uint64) []Row {
	if len(sizes) < 2 {
		return nil
	}
	few, many := sizes[len(sizes)-2], sizes[len(sizes)-1]
	return []Row{allocationRow(what, few, many, allocs)}
}

func recordedTree(ctx context.Context, o *options, n, every int) (rows []Row, allocs uint64, what string, err error) {
	t, err := newTree(n)
	if err != nil {
		return nil, 0, "", err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	p := place{
		what: "pods, RECORDED v2 tree on " + t.where, root: t.root, roots: []string{"/kubepods"}, pods: n, dirs: t.dirs(),
		between: func(_ context.Context, every int) error { return t.tick(every) },
		five:    t.five,
		peers: []peer{
			t.peer("cgroup2 StatFiltered(cpu, memory, io)", 10, cgroup2.StatCPU|cgroup2.StatMemory|cgroup2.StatIO),
			t.peer("cgroup2 Stat", 0, cgroup2.StatAll),
		},
	}
	rows, allocs, err = samplePods(ctx, p, every, o.ticks)
	return rows, allocs, p.what, err
}

// peer is containerd/cgroups' reader.
func (t *tree) peer(name string, goal float64, mask cgroup2.StatMask) peer {
	return peer{name: name, goal: goal, setUp: func(i int) (func() error, error) {
		m, err := cgroup2.Load(t.pods[i], cgroup2.WithMountpoint(t.root))
		return func() error {
			_, err := m.StatFiltered(mask)
			return err
		}, err
	}}
}
