package outer

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

type callOption = grpc.CallOption

// callError is the error of one method, cut to maxText.
type callError struct {
	method string
	err    error
}

func (e *callError) Error() string { return e.method + ": " + short(e.err).Error() }

func (e *callError) Unwrap() error { return e.err }

// Ask calls every plugin that is idle, all at the same time, waits for them
// until ctx is done, and returns their verdicts. A late answer is taken by the
// next Ask: no request is repeated and no answer is lost.
func (h *Host) Ask(ctx context.Context, r Round) []plugins.Verdict {
	c := h.Settings()
	list := h.plugins()
	waits := make([]<-chan struct{}, 0, len(list))
	for _, p := range list {
		waits = append(waits, p.startRound(r, c))
	}
	for _, done := range waits {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	var verdicts []plugins.Verdict
	for _, p := range list {
		verdicts = append(verdicts, p.takeVerdicts(r.Time, r.MaxAge)...)
	}
	return verdicts
}

// visiblePods is the pods of one round as one plugin sees them.
type visiblePods struct {
	wire [][]byte
	at   map[string]int // by UID
}

func newVisiblePods(pods []Pod, annotations []string) visiblePods {
	s := visiblePods{wire: make([][]byte, 0, len(pods)), at: make(map[string]int, len(pods))}
	for i, p := range pods {
		s.wire = append(s.wire, p.with(annotations))
		s.at[p.UID] = i
	}
	return s
}

// with appends the annotations that the pod has.
func (p Pod) with(annotations []string) []byte {
	b := slices.Clip(p.Wire) // all plugins share it
	for _, key := range annotations {
		b = append(b, p.Annotations[key]...)
	}
	return b
}

// ownEncodings returns the host's encodings of the pods that a plugin named, as far as
// they were in the request.
func (s visiblePods) ownEncodings(named [][]byte) [][]byte {
	var list [][]byte
	seen := map[string]bool{}
	for _, raw := range named {
		id, err := identifyPod(raw)
		i, there := s.at[id.uid]
		if err != nil || !there || seen[id.uid] {
			continue
		}
		seen[id.uid] = true
		list = append(list, s.wire[i])
	}
	return list
}
