package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// nodeLeases is the namespace of the Nodes' own Leases, which a kubelet renews.
const nodeLeases = "kube-node-lease"

// heartbeat is a Lease that the agent renews, and what is shown of it: the
// agent's own, or the Node's.
type heartbeat struct {
	beat *lease.Beat
	log  *slog.Logger

	// told is told when the Node may say something else by now: after a silence,
	// and where the agent keeps the Node Ready, after each renewal.
	told func()
	// ours says, where the agent keeps the Node Ready, whether it is our Lease to
	// renew, and known is closed once that is known.
	ours  atomic.Bool
	known chan struct{}
	once  sync.Once

	// granter has what the controller is asked for, and is told its answers; nil
	// beside the Node's Lease, which carries nothing.
	granter *granter

	// renewed is when it was renewed last, on the clock of Beat.Uptime; 0: never.
	// Of the beat's goroutine alone.
	renewed time.Duration

	// levels, outer and loads are what the Lease carries of the node.
	levels atomic.Pointer[plugins.Levels]
	outer  atomic.Pointer[map[string]string]
	loads  atomic.Pointer[vgdp.Pressure]
	// said are attempts that the log has not taken yet.
	said chan lease.Attempt
	// id of the agent's state directory, empty where it is not known or the Lease
	// carries nothing; other is that of another agent that was seen.
	id    string
	other chan string

	mu    sync.Mutex // guards shown; nothing is done under it but copying
	shown view.Heartbeat
}

// newHeartbeat renews the agent's own Lease, which says how the node is. It
// makes its connection ready, and opens none.
func newHeartbeat(c config.Lease, node string, how *rest.Config, log *slog.Logger) (*heartbeat, error) {
	h, err := beatOf(c, config.LeaseOfAgent, node, how, log)
	if err != nil {
		return nil, err
	}
	h.beat.Carry = h.carry
	return h, nil
}

// newKeeper renews the Node's own Lease, where there is no kubelet.
func newKeeper(c config.Lease, node string, how *rest.Config, log *slog.Logger) (*heartbeat, error) {
	h, err := beatOf(c, config.LeaseOfNode, node, how, log)
	if err != nil {
		return nil, err
	}
	h.beat.Exclusive = true
	return h, nil
}

func beatOf(c config.Lease, target, node string, how *rest.Config, log *slog.Logger) (*heartbeat, error) {
	own := rest.CopyConfig(how)
	own.UserAgent = "plimsoll-heartbeat/" + Version()
	line, err := lease.NewLine(own)
	if err != nil {
		return nil, err
	}
	h := &heartbeat{
		log: log, said: make(chan lease.Attempt, 16), other: make(chan string, 1), known: make(chan struct{}),
		beat: &lease.Beat{
			Node: node, Namespace: namespaceOf(target), Holder: holderOf(target, node), Line: line,
			Interval: c.Interval, Duration: c.Duration, Uptime: uptime,
		},
		shown: view.Heartbeat{Target: target, Interval: c.Interval, Duration: c.Duration, Outcomes: map[lease.Outcome]uint64{}},
	}
	h.beat.Beaten = h.beaten
	return h, nil
}

// holderOf a Lease: the node, as a kubelet says it. In the Node's own Lease the
// two must be told apart.
func holderOf(target, node string) string {
	if target == config.LeaseOfNode {
		return "plimsoll-agent/" + node
	}
	return node
}

// namespaceOf a Lease.
func namespaceOf(target string) string {
	if target == config.LeaseOfNode {
		return nodeLeases
	}
	return lease.Namespace
}

// carry is what goes with each beat.
func (h *heartbeat) carry() map[string]string {
	carried := map[string]string{}
	if levels := h.levels.Load(); levels != nil {
		carried[lease.NodeAnnotation] = reportOf(levels, h.outer.Load(), h.loads.Load())
	}
	if h.id != "" {
		carried[agentAnnotation] = h.id
	}
	if asked, known := h.granter.carry(); known {
		carried[lease.EvictionsAnnotation] = asked
	}
	return carried
}

// tell hands over how the node is; what got worse is carried at once.
func (h *heartbeat) tell(levels *plugins.Levels, rose bool) {
	before := h.levels.Swap(levels)
	if rose && (before == nil || !maps.Equal(pressureOf(before), pressureOf(levels))) {
		h.beat.Wake()
	}
}

// tellOuter hands over what outer plugins said. It waits for the next beat: they
// must not make it beat more often.
func (h *heartbeat) tellOuter(said []plugins.Verdict) {
	h.outer.Store(new(outerLevels(said)))
}

// mostOuter bounds the outer plugins that a Lease carries: every beat is stored.
const mostOuter = lease.MaxPlugins

// outerLevels are the levels of those that are at one, hard before soft.
func outerLevels(said []plugins.Verdict) map[string]string {
	highest := map[string]plugins.Level{}
	for _, v := range said {
		if v.Level > plugins.None {
			highest[v.Plugin] = max(highest[v.Plugin], v.Level)
		}
	}
	names := slices.SortedFunc(maps.Keys(highest), func(a, b string) int {
		return cmp.Or(cmp.Compare(highest[b], highest[a]), cmp.Compare(a, b))
	})
	levels := map[string]string{}
	for _, name := range names[:min(len(names), mostOuter)] {
		levels[name] = highest[name].String()
	}
	return levels
}

// tellLoads hands over how many data movers the node takes, nil for no limit;
// fewer are carried at once.
func (h *heartbeat) tellLoads(p *vgdp.Pressure) {
	before := h.loads.Swap(p)
	if p != nil && (before == nil || p.HoldUntil.After(before.HoldUntil) || p.Budget != nil && (before.Budget == nil || *p.Budget < *before.Budget)) {
		h.beat.Wake()
	}
}

// pressureOf each resource, as the rules say.
func pressureOf(levels *plugins.Levels) map[string]string {
	pressure := map[string]string{}
	for _, v := range levels.Verdicts {
		if level := levels.Of(v.Resource); level > plugins.None && v.Resource != "" {
			pressure[string(v.Resource)] = level.String()
		}
	}
	return pressure
}

// reportOf is what the rules say of each resource, what outer plugins say, and
// what is left for data movers, as compact JSON.
func reportOf(levels *plugins.Levels, outer *map[string]string, loads *vgdp.Pressure) string {
	r := lease.NodeReport{Pressure: pressureOf(levels)}
	if outer != nil {
		r.Plugins = *outer
	}
	if loads != nil {
		r.Budget = loads.Budget
		if !loads.HoldUntil.IsZero() {
			r.HoldUntil = new(lease.Micro(loads.HoldUntil))
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return "{}" // strings and numbers cannot fail
	}
	return string(text)
}

// beaten keeps an attempt for those who look; for the log as well, unless that
// does not come on: a log that nobody reads delays no beat.
func (h *heartbeat) beaten(a lease.Attempt) {
	h.mu.Lock()
	h.shown.Add(a)
	h.mu.Unlock()
	h.learn(a.Outcome)
	if a.Outcome.Good() {
		h.broke(h.beat.Uptime())
		h.granter.hear(a.Annotations)
		h.hearOther(a)
	}
	select {
	case h.said <- a:
	default:
	}
}

// learn whose Node this is: who else renews its Lease calls it ready, too.
func (h *heartbeat) learn(o lease.Outcome) {
	if !h.beat.Exclusive || !o.Good() && o != lease.Held {
		return
	}
	h.ours.Store(o.Good())
	h.once.Do(func() { close(h.known) })
	if o.Good() {
		h.told()
	}
}

// silence is after how long without a renewal a controller may have written
// that the agent is not heard: half of its grace period (fleet.grace).
const silence = 20 * time.Second

// broke a silence: the conditions may be Unknown, and are looked at anew.
func (h *heartbeat) broke(now time.Duration) {
	if h.renewed != 0 && now-h.renewed >= silence && !h.beat.Exclusive {
		h.told()
	}
	h.renewed = now
}

// whose is closed once it is known whose Node this is; nil-safe, as beside.
func (h *heartbeat) whose() <-chan struct{} {
	if h == nil {
		return closed()
	}
	return h.known
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// beside are these conditions and, where the agent keeps the Node ready, Ready:
// once it was made Unknown, renewing the Lease alone does not bring it back.
func (h *heartbeat) beside(list []lease.Condition) []lease.Condition {
	if h == nil || !h.ours.Load() {
		return list
	}
	return append(slices.Clip(list), lease.Condition{
		Type: string(corev1.NodeReady), Status: corev1.ConditionTrue, Reason: "AgentBeats", Message: "plimsoll-agent renews the Lease of this node; no kubelet does",
	})
}

// run beats until ctx is done.
func (h *heartbeat) run(ctx context.Context) error { return h.beat.Run(ctx) }

// write logs what changes, until ctx is done or the agent must end because of
// another one.
func (h *heartbeat) write(ctx context.Context) error {
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case other := <-h.other:
			if err := h.meet(other); err != nil {
				return err
			}
		case a := <-h.said:
			switch {
			case a.Err != nil && a.Err.Error() != said:
				said = a.Err.Error()
				h.log.Warn("failed to renew the Lease; retrying", "namespace", h.beat.Namespace, "outcome", a.Outcome, "error", a.Err)
			case a.Err == nil && said != "":
				said = ""
				h.log.Info("renewal of the Lease recovered", "namespace", h.beat.Namespace)
			case a.Outcome == lease.Created:
				h.log.Info("created the Lease", "namespace", h.beat.Namespace)
			}
		}
	}
}

// errNotRenewed: the Lease was not renewed since the start.
var errNotRenewed = errors.New("lease: not renewed yet")

// ready: others see this node's agent, or the Node, alive; nil-safe, as view.
func (h *heartbeat) ready() error {
	if h == nil {
		return nil
	}
	now := h.view()
	switch {
	case now.Renewed.IsZero() && now.Error != "":
		return fmt.Errorf("%w: %s", errNotRenewed, now.Error)
	case now.Renewed.IsZero():
		return errNotRenewed
	}
	if age := time.Since(now.Renewed); age > now.Duration {
		return fmt.Errorf("lease: not renewed for %s: %s", age.Round(time.Second), now.Error)
	}
	return nil
}

func (h *heartbeat) view() *view.Heartbeat {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	shown := h.shown.Clone()
	shown.Dials = h.beat.Line.Dials.Load()
	return &shown
}
