package outer

import (
	"context"

	"google.golang.org/grpc"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

type callOption = grpc.CallOption

// callError is the error of one method, cut to katalyst.MaxText.
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
	list := h.registry.plugins()
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
		verdicts = append(verdicts, p.takeVerdicts(r)...)
	}
	return verdicts
}
