package outer

import (
	"cmp"
	"context"
	"errors"
	"slices"
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

// pluginAnswer is one answer and its times.
type pluginAnswer struct {
	verdict plugins.Verdict
	asked   time.Time // when the call began: what it measured may be as old
	at      time.Time // when it came
	fresh   bool      // from its last round
}

// minLife is how long a plugin must be registered, if it has answered no round, to be
// registered anew without backoff.
const minLife = 5 * time.Second

// waitForEnd waits until its connection or the host ends, or the configuration
// excludes it. It reports whether the plugin hung up before it was of use.
func (p *plugin) waitForEnd() (hungUp bool) {
	defer p.cancel()
	select {
	case <-p.ctx.Done():
		return false
	case <-p.link.closed():
	case <-p.endpoint.closed():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	answered := !p.namedAnswer.at.IsZero() || !p.metAnswer.at.IsZero()
	return !answered && time.Since(p.since) < minLife
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
	return isLate(err)
}

// remains are what is kept of a plugin that has ended: that by which it is judged, and its last
// answers.
func (p *plugin) remains() *plugin {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &plugin{
		host: p.host, socket: p.socket, name: p.name, listener: p.listener, process: p.process, link: p.link, endpoint: p.endpoint,
		namedAnswer: p.namedAnswer, metAnswer: p.metAnswer, maxAge: p.maxAge,
	}
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
func (p *plugin) startRound(r Round, shown katalyst.VisiblePods, c Config) <-chan struct{} {
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
		r.Graces.Registered(p.name, p.process, r.Time)
	}
	p.running = done
	p.lastCall = time.Now()
	p.calls.Go(func() {
		failed, err := p.round(p.ctx, r, shown, c)
		if failed {
			p.host.registry.retryNamed(p.name) // it may hang
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.breaker = p.breaker.after(failed, time.Now())
		p.failure, p.lastDuration = "", time.Since(p.lastCall)
		if err != nil {
			p.failure = katalyst.Clip(err.Error())
		}
		p.running, p.pending = nil, true
		close(done)
	})
	return done
}

// round makes the calls in the order that plugins rely on. A failed call costs its own
// answer only. The round itself failed if there is no threshold, or the plugin let it wait
// until the limit of a call: an error of another method silences no threshold.
func (p *plugin) round(ctx context.Context, r Round, shown katalyst.VisiblePods, c Config) (failed bool, err error) {
	conv := katalyst.Converter{
		Plugin: p.name, NoExecute: c.NoExecute, ForceGraceZero: c.ForceGraceZero, Shown: shown, Refuse: p.host.registry.counts.refuse(p.name),
	}
	asked := time.Now()
	evictPods, err := call(ctx, p, c.CallTimeout, "GetEvictPods", p.client.GetEvictPods, &wire.GetEvictPodsRequest{}, withPods(shown))
	p.recordAnswer(&p.namedAnswer, asked, err == nil, func(was plugins.Verdict) plugins.Verdict { return since(conv.Named(evictPods), was, r.Time) })
	asked = time.Now()
	threshold, metErr := call(ctx, p, c.CallTimeout, "ThresholdMet", p.client.ThresholdMet, &wire.GetThresholdMetRequest{}, withPods(shown))
	if metErr != nil {
		r.Graces.Missed(p.name)
		p.recordAnswer(&p.metAnswer, asked, false, nil)
		return true, metErr
	}
	v := conv.Threshold(threshold)
	p.host.registry.counts.scope(p.name, v.Scope)
	v.Process = p.process
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
	p.recordAnswer(&p.metAnswer, asked, true, func(was plugins.Verdict) plugins.Verdict { return since(v, was, r.Time) })
	failed = isLate(err) || isLate(topErr)
	if err == nil {
		err = topErr
	}
	return failed, err
}

// top asks for the pods to evict: at soft for none, which tells the plugin that
// its soft threshold was received.
func (p *plugin) top(ctx context.Context, of *wire.ThresholdMetResponse, shown katalyst.VisiblePods, c Config, level plugins.Level, r Round) (*wire.GetTopEvictionPodsResponse, error) {
	candidates, uids := shown.OwnEncodings(of.GetCandidatePods())
	request := &wire.GetTopEvictionPodsRequest{ActivePods: candidates, EvictionScope: of.GetEvictionScope()}
	var options []callOption
	switch {
	case len(candidates) > 0:
	case len(of.GetCandidatePods()) > 0: // it would take all pods for its candidates
		return nil, errCandidatesNotShown
	default:
		options = append(options, withPods(shown))
	}
	if level == plugins.Hard {
		if r.Disruptions != nil { // as Katalyst: there are records of candidates alone
			request.CandidateEvictionRecords = katalyst.Records(uids, r.Disruptions(ctx, uids))
		}
		request.TopN = uint64(min(1+r.Unevictable[p.name], c.Top))
	}
	return call(ctx, p, c.CallTimeout, "GetTopEvictionPods", p.client.GetTopEvictionPods, request, options...)
}

var errCandidatesNotShown = errors.New("none of the candidates that it names was in the request to it")

// recordAnswer stores an answer, or that there was none.
func (p *plugin) recordAnswer(to *pluginAnswer, asked time.Time, answered bool, of func(was plugins.Verdict) plugins.Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to.fresh = answered
	if !answered {
		return
	}
	to.verdict, to.asked, to.at = of(to.verdict), asked, time.Now()
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
func (p *plugin) takeVerdicts(r Round) []plugins.Verdict {
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
		switch age := r.Time.Sub(s.asked).Abs(); { // a clock that was set makes it unknown
		case !news || !s.fresh:
			v = expire(v, s.at, r.Time, r.MaxAge, p.staleReason(r.Time))
		case age > cmp.Or(r.EvictAge, r.MaxAge):
			v = markOnly(v, s.asked, age)
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

// markOnly is a verdict whose call began too long ago for a pod to be evicted by it. The
// pods that it forces are wanted for plugins.ForcedTTL.
func markOnly(v plugins.Verdict, asked time.Time, age time.Duration) plugins.Verdict {
	v.Candidates = slices.DeleteFunc(slices.Clone(v.Candidates), func(c plugins.Candidate) bool { return !c.Forced || age >= plugins.ForcedTTL })
	if v.Scope != plugins.ScopeNamed { // no pod stays named by it either
		v.Absent = "no candidates: the plugin was asked at " + asked.UTC().Format("15:04:05 MST") + ", too long ago to evict a pod by its answer"
	}
	return v
}

// call makes one call, for at most the time limit, and counts it. A method that the
// plugin does not implement returns an empty answer, which is no failure.
func call[Request, Answer any](ctx context.Context, p *plugin, limit time.Duration, method string,
	do func(context.Context, *Request, ...callOption) (*Answer, error), request *Request, options ...callOption,
) (*Answer, error) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := do(ctx, request, options...)
	if status.Code(err) == codes.Unimplemented {
		err, answer = nil, new(Answer)
	}
	p.host.registry.counts.call(p.name, method, result(err), time.Since(begun))
	if err != nil {
		return nil, newCallError(method, err, begun, limit)
	}
	return answer, nil
}

// result is the gRPC status of a call; one that gRPC does not have, which a plugin may
// choose among billions, counts as Unknown.
func result(err error) string {
	code := status.Code(err)
	if code > codes.Unauthenticated { // the last one
		code = codes.Unknown
	}
	return code.String()
}
