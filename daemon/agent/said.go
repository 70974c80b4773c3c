package agent

import (
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// said passes verdicts of outer plugins from the rounds to the recording.
type said struct {
	newest atomic.Pointer[[]plugins.Verdict] // nil: no round since the last sample
	kept   string                            // what was recorded last; owned by the sample loop
}

func (s *said) hear(v []plugins.Verdict) { s.newest.Store(&v) }

// with adds the newest verdicts to a sample if they have changed.
func (s *said) with(sample *snapshot.Sample) (*snapshot.Sample, error) {
	newest := s.newest.Swap(nil)
	if newest == nil || len(*newest) == 0 && s.kept == "" {
		return sample, nil
	}
	text, err := json.Marshal(*newest)
	if err != nil {
		return nil, fmt.Errorf("encode verdicts of outer plugins: %w", err)
	}
	if string(text) == s.kept {
		return sample, nil
	}
	s.kept = string(text)
	more := *sample
	more.Said = text
	return &more, nil
}
