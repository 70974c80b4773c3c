package main

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/blockdevice"

	"github.com/plimsoll-dev/plimsoll/probes"
)

// hostSample measures a sample of the host without workloads beside procfs.
func hostSample(ctx context.Context, o *options) ([]Row, error) {
	o.say("the host's files")
	h, err := probes.NewHost(probes.Paths{Procfs: "/proc", Sysfs: "/sys"}, []string{"/" + ownPrefix + "nowhere"})
	if err != nil {
		return nil, err
	}
	theirs, err := procfsReader()
	if err != nil {
		return nil, err
	}
	ours := &contender{name: "ours", run: func(int) error {
		s, err := h.Read()
		if err == nil && len(s.Workloads) > 0 {
			err = fmt.Errorf("%d workloads where none is", len(s.Workloads))
		}
		return err
	}}
	peer := &contender{name: "procfs", run: func(int) error { return theirs() }}
	if err := sideBySide(ctx, 4*o.ticks, warmTicks, func() error { return wait(ctx, time.Millisecond) }, []*contender{ours, peer}); err != nil {
		return nil, err
	}
	return []Row{{
		What:  "host sample: all that we read of the host, without workloads",
		Ours:  short(ours.perTick()),
		Peer:  "procfs: diskstats, net/dev, meminfo, 3 × PSI alone: " + short(peer.perTick()),
		Ratio: digits(over(ours.perTick(), peer.perTick())) + " ×",
	}}, nil
}

// procfsReader reads the six files that the goal's measurement names.
func procfsReader() (func() error, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	block, err := blockdevice.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	return func() error {
		if _, err := block.ProcDiskstats(); err != nil {
			return err
		}
		if _, err := fs.NetDev(); err != nil {
			return err
		}
		if _, err := fs.Meminfo(); err != nil {
			return err
		}
		for _, resource := range []string{"cpu", "memory", "io"} {
			if _, err := fs.PSIStatsForResource(resource); err != nil {
				return err
			}
		}
		return nil
	}, nil
}
