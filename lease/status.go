package lease

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// DefaultEvery is how often the conditions are computed: as often as the
	// kubelet computes its own.
	DefaultEvery = 10 * time.Second
	// minReportInterval and reportSpread give each node its own period, so that agents
	// that started at the same time do not write at the same time. With the wait
	// for the next pass it stays below 5 min, the kubelet's
	// nodeStatusReportFrequency.
	minReportInterval, reportSpread = 4 * time.Minute, 45 * time.Second
	// statusCallTimeout bounds each call to the API server.
	statusCallTimeout = 5 * time.Second
	// fieldManager owns our conditions in server-side apply.
	fieldManager = "plimsoll-agent"
)

// Condition is one condition of the Node as it should be now.
type Condition struct {
	// Type is a qualified name, such as plimsoll.dev/MemoryContention.
	Type   string
	Status corev1.ConditionStatus
	// Reason is one word in UpperCamelCase. A change of Status or Reason is
	// written at once, one of Message alone with the next write.
	Reason, Message string
}

// Status keeps the agent's conditions on its Node up to date (a reconcile loop). It
// writes them by server-side apply, so foreign ones stay and those no longer wanted
// are removed. It writes when a status or reason has changed, else every
// ReportEvery.
type Status struct {
	// Node is the name of the Node. If it does not exist, nothing is written.
	Node  string
	Nodes corev1client.NodesGetter
	// Conditions returns all conditions as they should be. It must not block.
	Conditions func() []Condition
	// Every is the time between two passes; DefaultEvery when 0.
	Every time.Duration
	// ReportEvery is the time after which an unchanged status is written; when
	// 0, between 4 and 5 minutes, by the Node's name.
	ReportEvery time.Duration
	Log         *slog.Logger

	woken       chan struct{}   // holds at most one wake-up
	once        sync.Once       // guards the creation of woken
	known       *nodeConditions // nil until the Node was read, and after a failed write
	reread      atomic.Bool     // known is out of date
	loggedError string          // the last logged error; empty after a success
	mu          sync.Mutex      // guards writes
	writes      map[Write]uint64
}

// Write is why the status was written, or that writing failed.
type Write string

// The writes, as Writes counts them.
const (
	Changed     Write = "changed" // a status or reason changed, or a condition came or went
	Report      Write = "report"  // nothing changed for ReportEvery
	WriteFailed Write = "failed"  // the API server refused it, or did not answer
)

// Run computes the conditions, and writes them if needed, until ctx is done.
func (s *Status) Run(ctx context.Context) error {
	tick := time.NewTicker(cmp.Or(s.Every, DefaultEvery))
	defer tick.Stop()
	for {
		s.reconcile(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.wakeups():
		}
	}
}

// Wake makes Run do a pass at once. It never blocks.
func (s *Status) Wake() {
	select {
	case s.wakeups() <- struct{}{}:
	default: // a wake-up is pending
	}
}

// Reread makes Run read the Node and do a pass at once, because the Node was changed
// by another client.
func (s *Status) Reread() {
	s.reread.Store(true)
	s.Wake()
}

func (s *Status) wakeups() chan struct{} {
	s.once.Do(func() { s.woken = make(chan struct{}, 1) })
	return s.woken
}

// Writes returns how often the status was written since the start, by reason, and
// how often writing failed.
func (s *Status) Writes() map[Write]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[Write]uint64{Changed: s.writes[Changed], Report: s.writes[Report], WriteFailed: s.writes[WriteFailed]}
}

func (s *Status) count(w Write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writes == nil {
		s.writes = map[Write]uint64{}
	}
	s.writes[w]++
}

// reconcile is one pass: it writes the status if needed.
func (s *Status) reconcile(ctx context.Context) {
	if s.reread.Swap(false) {
		s.known = nil
	}
	if s.known == nil {
		node, err := s.read(ctx)
		if err != nil {
			s.logError(ctx, fmt.Errorf("get node: %w", err))
			return
		}
		s.known = nodeConditionsOf(node)
	}
	conditions, why := plan(s.known, s.Conditions(), time.Now(), s.reportEvery())
	if why == "" {
		s.logError(ctx, nil)
		return
	}
	node, err := s.write(ctx, conditions)
	if err != nil {
		s.known = nil // it may have been written or not: read it again
		if ctx.Err() == nil {
			s.count(WriteFailed)
		}
		s.logError(ctx, fmt.Errorf("apply node status: %w", err))
		return
	}
	s.known = nodeConditionsOf(node)
	s.count(why)
	s.logError(ctx, nil)
}

// logError logs an error once, until it changes or a pass succeeds.
func (s *Status) logError(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil && s.loggedError != "":
		s.loggedError = ""
		s.Log.Info("node status update recovered", "node", s.Node)
	case err == nil:
	case err.Error() != s.loggedError:
		s.loggedError = err.Error()
		s.Log.Warn("failed to update node status; retrying", "node", s.Node, "error", err, "nodeNotFound", apierrors.IsNotFound(err))
	}
}

func (s *Status) read(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, statusCallTimeout)
	defer cancel()
	return s.Nodes.Nodes().Get(ctx, s.Node, metav1.GetOptions{})
}

func (s *Status) apply(ctx context.Context, conditions []corev1.NodeCondition) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, statusCallTimeout)
	defer cancel()
	// Force: take back conditions of ours that another client wrote.
	return s.Nodes.Nodes().ApplyStatus(ctx, applycorev1.Node(s.Node).WithStatus(statusOf(conditions)),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
}

// write applies these conditions and removes all others of ours. An empty list is
// not applied: that would also remove conditions without an owner in the managed
// fields, such as the kubelet's after these were cleared.
func (s *Status) write(ctx context.Context, conditions []corev1.NodeCondition) (*corev1.Node, error) {
	first := s.read
	if len(conditions) > 0 {
		first = func(ctx context.Context) (*corev1.Node, error) { return s.apply(ctx, conditions) }
	}
	node, err := first(ctx)
	if err != nil {
		return nil, err
	}
	k := nodeConditionsOf(node)
	patch, some, err := removalOf(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		given := func(g corev1.NodeCondition) bool { return g.Type == c.Type }
		return k.ours(c.Type) && !slices.ContainsFunc(conditions, given)
	})
	if err != nil || !some {
		return node, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusCallTimeout)
	defer cancel()
	return s.Nodes.Nodes().Patch(ctx, s.Node, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
}

// removalOf is the JSON patch that removes conditions by index, the last first.
func removalOf(conditions []corev1.NodeCondition, which func(corev1.NodeCondition) bool) (patch []byte, some bool, err error) {
	type op struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	var list []op
	for i, c := range slices.Backward(conditions) {
		if which(c) {
			at := fmt.Sprintf("/status/conditions/%d", i)
			list = append(list, op{Op: "test", Path: at + "/type", Value: c.Type}, op{Op: "remove", Path: at})
		}
	}
	patch, err = json.Marshal(list)
	return patch, len(list) > 0, err
}

func statusOf(conditions []corev1.NodeCondition) *applycorev1.NodeStatusApplyConfiguration {
	status := applycorev1.NodeStatus()
	for _, c := range conditions {
		status.WithConditions(applycorev1.NodeCondition().WithType(c.Type).WithStatus(c.Status).
			WithReason(c.Reason).WithMessage(c.Message).
			WithLastHeartbeatTime(c.LastHeartbeatTime).WithLastTransitionTime(c.LastTransitionTime))
	}
	return status
}

func (s *Status) reportEvery() time.Duration {
	if s.ReportEvery > 0 {
		return s.ReportEvery
	}
	sum := sha256.Sum256([]byte(s.Node)) // spread names that differ in one digit
	return minReportInterval + time.Duration(binary.BigEndian.Uint64(sum[:])%uint64(reportSpread))
}
