package lease

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	// fieldManager is the agent's name in managed fields.
	fieldManager = "plimsoll-agent"
)

// Condition is one condition of the Node as it should be now.
type Condition struct {
	// Type is a qualified name, such as plimsoll.dev/MemoryContention, or Ready.
	Type   string
	Status corev1.ConditionStatus
	// Reason is one word in UpperCamelCase. A change of Status or Reason is
	// written at once, one of Message alone with the next write.
	Reason, Message string
}

// Status keeps the agent's conditions on its Node up to date (a reconcile loop). Those
// with our prefix that are no longer wanted are removed, and those of others stay. It
// writes when a status or reason has changed, else every ReportEvery. Ready, where it is
// wanted, has a patch of its own, and is left to another client that writes it.
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
	seenReady   seenReady       // as known had it last
	conflicts   int             // how many writes of Ready in a row were refused as conflicts
	loggedReady string          // the last logged reason why Ready is not written
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
		s.learn(node)
	}
	own, ready := splitReady(s.Conditions())
	err := s.write(ctx, plan(s.known, own, time.Now(), s.reportEvery()))
	s.logError(ctx, err)
	c, other := planReady(s.known, ready, s.seenReady.unchanged, time.Now(), s.reportEvery())
	errReady := s.write(ctx, c) // a refusal, for want of a right, refuses no other condition
	s.logReady(ctx, errReady, other, len(ready) > 0)
	if err != nil || errReady != nil {
		s.known = nil // it may have been written or not: read it again
	}
}

// splitReady separates Ready from the agent's own conditions.
func splitReady(all []Condition) (own, ready []Condition) {
	for _, c := range all {
		if c.Type == string(corev1.NodeReady) {
			ready = append(ready, c)
		} else {
			own = append(own, c)
		}
	}
	return own, ready
}

// write makes a change, if there is one.
func (s *Status) write(ctx context.Context, c change) error {
	if c.why == "" {
		return nil
	}
	node, err := patchStatus(ctx, s.Nodes, s.Node, c)
	if err != nil {
		if ctx.Err() == nil {
			s.count(WriteFailed)
		}
		return err
	}
	s.learn(node)
	s.count(c.why)
	return nil
}

// learn remembers the Node as the API server returned it.
func (s *Status) learn(node *corev1.Node) {
	s.known = nodeConditionsOf(node)
	s.seenReady.see(s.known, time.Now())
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

// conflictsLogged is how many conflicts in a row it takes to log one. A single one shows that
// the Node was changed between read and write, and the next pass reads it again.
const conflictsLogged = 6

// logReady logs why Ready is not written once, until the reason changes or ends.
func (s *Status) logReady(ctx context.Context, err error, other *corev1.NodeCondition, wanted bool) {
	if !apierrors.IsConflict(err) {
		s.conflicts = 0
	} else if s.conflicts++; s.conflicts < conflictsLogged {
		return
	}
	why := ""
	switch {
	case err != nil:
		why = err.Error()
	case other != nil:
		why = "another client writes it"
	}
	if ctx.Err() != nil || why == s.loggedReady {
		return
	}
	s.loggedReady = why
	switch {
	case apierrors.IsForbidden(err):
		s.Log.Warn("the API server refused the Node's Ready condition; retrying; if it is the only one, apply deploy/rbac-lease-node.yaml, or set lease.target: agent", "node", s.Node, "error", err)
	case err != nil:
		s.Log.Warn("failed to write the Node's Ready condition; retrying", "node", s.Node, "error", err)
	case other != nil:
		s.Log.Warn("another client, such as a kubelet, writes the Node's Ready condition; the agent does not write it until that client has stopped for a time; if a kubelet runs here, set lease.target: agent",
			"node", s.Node, "time", otherWriterGone, "status", other.Status, "reason", other.Reason)
	case wanted:
		s.Log.Info("the agent writes the Node's Ready condition again", "node", s.Node)
	}
}

func (s *Status) read(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, statusCallTimeout)
	defer cancel()
	return s.Nodes.Nodes().Get(ctx, s.Node, metav1.GetOptions{})
}

// patchStatus writes a change to a Node, and returns the Node after it.
func patchStatus(ctx context.Context, nodes corev1client.NodesGetter, name string, c change) (*corev1.Node, error) {
	body, err := c.body()
	if err != nil {
		return nil, fmt.Errorf("encode node status: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, statusCallTimeout)
	defer cancel()
	node, err := nodes.Nodes().Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if err != nil {
		return nil, fmt.Errorf("patch node status: %w", err)
	}
	return node, nil
}

func (s *Status) reportEvery() time.Duration {
	if s.ReportEvery > 0 {
		return s.ReportEvery
	}
	sum := sha256.Sum256([]byte(s.Node)) // spread names that differ in one digit
	return minReportInterval + time.Duration(binary.BigEndian.Uint64(sum[:])%uint64(reportSpread))
}
