package outer

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/plimsoll-dev/plimsoll/katalyst"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

type callOption = grpc.CallOption

// callError is the error of one method, cut to katalyst.MaxText.
type callError struct {
	method string
	err    error
	// late: the call took its time limit, or almost, since the plugin's clock may be
	// ahead. Its status does not tell: a plugin may return DeadlineExceeded at once,
	// for a call of its own.
	late bool
}

func newCallError(method string, err error, begun time.Time, limit time.Duration) *callError {
	return &callError{method, err, time.Since(begun) > limit*9/10}
}

// isLate reports whether a plugin let a call wait until its time limit.
func isLate(err error) bool {
	var failed *callError
	return errors.As(err, &failed) && failed.late
}

func (e *callError) Error() string { return e.method + ": " + short(e.err).Error() }

func (e *callError) Unwrap() error { return e.err }

// Ask calls every plugin that is idle, all at the same time, waits for them
// until ctx is done, and returns their verdicts, and those of Ended. A late answer is taken by the
// next Ask: no request is repeated and no answer is lost.
func (h *Host) Ask(ctx context.Context, r Round) []plugins.Verdict {
	c := h.Settings()
	list := h.registry.plugins()
	waits := make([]<-chan struct{}, 0, len(list))
	shown := map[string]katalyst.VisiblePods{} // by the annotations that a plugin may see
	for _, p := range list {
		keys := c.AnnotationKeys(p.name)
		set := strings.Join(keys, ",") // none has a comma
		if _, there := shown[set]; !there {
			shown[set] = katalyst.NewVisiblePods(r.Pods, keys)
		}
		waits = append(waits, p.startRound(r, shown[set], c))
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
	return append(verdicts, h.Ended(r.Time)...)
}
