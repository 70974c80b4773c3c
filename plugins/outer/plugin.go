package outer

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-dev/plimsoll/katalyst"
	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// plugin is a registered plugin. Its connection is one process: it ends with
// the connection, and a process that connects later is another plugin.
type plugin struct {
	host           *Host
	socket         *socket
	name           string
	since          time.Time
	uid            uint32
	listener       listener
	process        string      // plugins.Verdict.Process
	link, endpoint *connection // endpoint is link, or a connection of its own
	client         wire.EvictionPluginClient
	ctx            context.Context // ends with the plugin
	cancel         context.CancelFunc
	released       chan struct{} // closed when its name is available
	calls          sync.WaitGroup

	mu           sync.Mutex // guards all below
	breaker      breaker
	running      chan struct{} // closed at the end of the running round; nil: none
	pending      bool          // an answer is ready that no round has taken
	lastCall     time.Time     // start of its last round
	lastDuration time.Duration // duration of that round
	failure      string        // error of its last round; empty: none
	namedAnswer  pluginAnswer  // by GetEvictPods
	metAnswer    pluginAnswer  // by ThresholdMet
	condition    string        // the last condition that it reported
	maxAge       time.Duration // Round.MaxAge of the last round
	unmarked     string        // Status.Unmarked
	warned       bool          // of unmarked
}

// pluginAnswer is one answer and its time.
type pluginAnswer struct {
	verdict plugins.Verdict
	at      time.Time
	fresh   bool // from its last round
}

// waitForEnd waits until its connection or the host ends, or the configuration
// excludes it.
func (p *plugin) waitForEnd() {
	defer p.cancel()
	select {
	case <-p.ctx.Done():
	case <-p.link.closed():
	case <-p.endpoint.closed():
	}
}

// isDead reports whether another plugin may take its name: its connection has
// ended, or it does not answer GetInfo within the time limit of a call. A plugin
// that answers, if only with errors, keeps its name.
func (p *plugin) isDead(ctx context.Context, limit time.Duration) bool {
	select {
	case <-p.ctx.Done():
		return true
	case <-p.link.closed():
		return true
	case <-p.endpoint.closed():
		return true
	default:
	}
	_, err := getInfo(ctx, registration.NewRegistrationClient(p.link), limit)
	return err != nil && ctx.Err() == nil
}

func (p *plugin) closeEndpoint() {
	p.cancel()
	if p.endpoint != p.link {
		_ = p.endpoint.Close() // its result does not matter any more
	}
}

// startRound starts a round with the plugin, unless its previous one still runs or has
// an answer that was not taken, or its circuit breaker is open. The channel is
// closed when there is nothing to wait for. A call that a round has waited for is
// not waited for again.
func (p *plugin) startRound(r Round, c Config) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.maxAge = r.MaxAge
	done := make(chan struct{})
	if p.running != nil {
		if time.Since(p.lastCall) < c.Deadline {
			return p.running
		}
		close(done)
		return done
	}
	if p.pending || p.ctx.Err() != nil || !p.breaker.open(r.Time).IsZero() {
		close(done)
		return done
	}
	if p.lastCall.IsZero() {
		r.Graces.Registered(p.name)
	}
	p.running = done
	p.lastCall = time.Now()
	p.calls.Go(func() {
		err := p.round(p.ctx, r, c)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.breaker = p.breaker.after(err != nil, time.Now())
		p.failure, p.lastDuration = "", time.Since(p.lastCall)
		if err != nil {
			p.failure = katalyst.Clip(err.Error())
		}
		p.running, p.pending = nil, true
		close(done)
	})
	return done
}

// round makes the calls in the order that plugins rely on. A failed call costs
// its own answer only.
func (p *plugin) round(ctx context.Context, r Round, c Config) error {
	shown := katalyst.NewVisiblePods(r.Pods, c.AnnotationKeys(p.name))
	conv := katalyst.Converter{
		Plugin: p.name, NoExecute: c.NoExecute, ForceGraceZero: c.ForceGraceZero, Shown: shown, Refuse: p.host.registry.counts.refuse(p.name),
	}
	evictPods, err := call(ctx, p, c.CallTimeout, "GetEvictPods", p.client.GetEvictPods, &wire.GetEvictPodsRequest{ActivePods: shown.Wire})
	p.recordAnswer(&p.namedAnswer, err == nil, func(was plugins.Verdict) plugins.Verdict { return since(conv.Named(evictPods), was, r.Time) })
	threshold, metErr := call(ctx, p, c.CallTimeout, "ThresholdMet", p.client.ThresholdMet, &wire.GetThresholdMetRequest{ActivePods: shown.Wire})
	if metErr != nil {
		r.Graces.Missed(p.name)
		p.recordAnswer(&p.metAnswer, false, nil)
		return metErr
	}
	v := conv.Threshold(threshold)
	v.GraceEnds = r.Graces.Reported(v, r.Time)
	topErr := error(nil)
	if v.Level > plugins.None && !r.Time.Before(v.GraceEnds) {
		top, e := p.top(ctx, threshold, shown, c, v.Level, r)
		if topErr = e; e == nil {
			conv.Top(&v, top, c.Top)
		} else {
			v.Absent = "no candidates: " + katalyst.Clip(e.Error())
		}
	}
	p.recordAnswer(&p.metAnswer, true, func(was plugins.Verdict) plugins.Verdict { return since(v, was, r.Time) })
	if err == nil {
		err = topErr
	}
	return err
}

// top asks for the pods to evict: at soft for none, which tells the plugin that
// its soft threshold was received.
func (p *plugin) top(ctx context.Context, of *wire.ThresholdMetResponse, shown katalyst.VisiblePods, c Config, level plugins.Level, r Round) (*wire.GetTopEvictionPodsResponse, error) {
	request := &wire.GetTopEvictionPodsRequest{ActivePods: shown.Wire, EvictionScope: of.GetEvictionScope()}
	candidates, uids := shown.OwnEncodings(of.GetCandidatePods())
	if len(candidates) > 0 {
		request.ActivePods = candidates
	}
	if level == plugins.Hard {
		if r.Disruptions != nil { // as Katalyst: there are records of candidates alone
			request.CandidateEvictionRecords = katalyst.Records(uids, r.Disruptions(ctx, uids))
		}
		request.TopN = uint64(min(1+r.Unevictable[p.name], c.Top))
	}
	return call(ctx, p, c.CallTimeout, "GetTopEvictionPods", p.client.GetTopEvictionPods, request)
}

// recordAnswer stores an answer, or that there was none.
func (p *plugin) recordAnswer(to *pluginAnswer, answered bool, of func(was plugins.Verdict) plugins.Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to.fresh = answered
	if !answered {
		return
	}
	to.verdict, to.at = of(to.verdict), time.Now()
	if to.verdict.Condition != "" {
		p.condition = to.verdict.Condition
	}
}

// since sets the time from which a verdict has had its level.
func since(v, was plugins.Verdict, now time.Time) plugins.Verdict {
	v.Since = now
	if was.Plugin != "" && was.Scope == v.Scope && was.Level == v.Level {
		v.Since = was.Since
	}
	return v
}

// takeVerdicts returns the plugin's verdicts for this round. The candidates of an
// answer count once, in the round that takes it.
func (p *plugin) takeVerdicts(now time.Time, maxAge time.Duration) []plugins.Verdict {
	beside := p.beside()
	p.mu.Lock()
	defer p.mu.Unlock()
	news := p.pending
	p.pending = false
	var list []plugins.Verdict
	for _, s := range []*pluginAnswer{&p.namedAnswer, &p.metAnswer} {
		if s.at.IsZero() {
			continue
		}
		v := s.verdict
		v.Process, v.Beside = p.process, beside
		if !news || !s.fresh {
			v = expire(v, s.at, now, maxAge, p.staleReason(now))
		}
		list = append(list, v)
	}
	return list
}

// beside is what its verdicts are good for beside a rival.
func (p *plugin) beside() plugins.Beside {
	return p.host.rivals.known().beside(p.host.Settings().Beside, p.socket.path, p.listener)
}

// staleReason is the reason why the plugin has no new answer.
func (p *plugin) staleReason(now time.Time) string {
	switch {
	case p.running != nil:
		return "its calls of the previous round still run"
	case !p.breaker.open(now).IsZero():
		return "circuit breaker open until " + p.breaker.until.UTC().Format("15:04:05 MST") + ": " + p.failure
	case p.failure != "":
		return p.failure
	}
	return "not called in this round"
}

// expire turns an old answer into a verdict without candidates, and without a
// level once it is older than maxAge.
func expire(v plugins.Verdict, at, now time.Time, maxAge time.Duration, why string) plugins.Verdict {
	v.Candidates = nil
	v.Absent = "no answer since " + at.UTC().Format("15:04:05 MST") + ": " + why
	if now.Sub(at) > maxAge {
		v.Level, v.MetLevel, v.Reason = plugins.None, plugins.None, v.Absent
	}
	return v
}

// call makes one call, for at most the time limit, and counts it. A method that the
// plugin does not implement returns an empty answer, which is no failure.
func call[Request, Answer any](ctx context.Context, p *plugin, limit time.Duration, method string,
	do func(context.Context, *Request, ...callOption) (*Answer, error), request *Request,
) (*Answer, error) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := do(ctx, request)
	if status.Code(err) == codes.Unimplemented {
		err, answer = nil, new(Answer)
	}
	p.host.registry.counts.call(p.name, method, status.Code(err).String(), time.Since(begun))
	if err != nil {
		return nil, &callError{method, err}
	}
	return answer, nil
}
