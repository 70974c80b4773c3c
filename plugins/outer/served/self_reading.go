package served

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// The agent's defaults.
const (
	tick   = time.Second
	window = 10 * time.Second
	keep   = 2 * time.Minute
	maxGap = 5 * time.Second
)

// SelfReading is an Inner that reads the host itself, once a second.
type SelfReading struct {
	Inner
	Host *probes.Host
}

// Run reads until the context is done.
func (w *SelfReading) Run(ctx context.Context) error {
	history := &snapshot.History{Window: window, Keep: keep, MaxGap: maxGap}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		sample, err := w.Host.Read()
		if err != nil {
			return err
		}
		w.Judge(history.Add(sample))
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
