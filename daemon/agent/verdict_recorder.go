package agent

import (
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// verdictRecorder passes verdicts of outer plugins from the rounds to the recording.
type verdictRecorder struct {
	newest   atomic.Pointer[[]plugins.Verdict] // nil: no round since the last sample
	recorded string                            // what was recorded last; owned by the sample loop
}

func (s *verdictRecorder) set(v []plugins.Verdict) { s.newest.Store(&v) }

// addTo adds the newest verdicts to a sample if they have changed.
func (s *verdictRecorder) addTo(sample *snapshot.Sample) (*snapshot.Sample, error) {
	newest := s.newest.Swap(nil)
	if newest == nil || len(*newest) == 0 && s.recorded == "" {
		return sample, nil
	}
	text, err := json.Marshal(*newest)
	if err != nil {
		return nil, fmt.Errorf("encode verdicts of outer plugins: %w", err)
	}
	if string(text) == s.recorded {
		return sample, nil
	}
	s.recorded = string(text)
	more := *sample
	more.OuterVerdicts = text
	return &more, nil
}
