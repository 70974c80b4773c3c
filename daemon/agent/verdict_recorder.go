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
	newest atomic.Pointer[[]plugins.Verdict] // nil: no round since the last sample
	text   json.RawMessage                   // the newest as JSON; nil: there never were any; owned by the sample loop
}

func (s *verdictRecorder) set(v []plugins.Verdict) { s.newest.Store(&v) }

// addTo is a sample with the newest verdicts. Each sample has them: any may be the
// first of a file, or be lost.
func (s *verdictRecorder) addTo(sample *snapshot.Sample) (*snapshot.Sample, error) {
	if newest := s.newest.Swap(nil); newest != nil && (len(*newest) > 0 || s.text != nil) {
		text, err := json.Marshal(*newest)
		if err != nil {
			return nil, fmt.Errorf("encode verdicts of outer plugins: %w", err)
		}
		s.text = text
	}
	if s.text == nil {
		return sample, nil
	}
	more := *sample
	more.OuterVerdicts = s.text
	return &more, nil
}
