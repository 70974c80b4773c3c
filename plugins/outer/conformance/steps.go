package conformance

import (
	"context"
	"math"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
)

// Options of an examination: either Socket or Command.
type Options struct {
	// Socket of a plugin that runs.
	Socket string
	// Command starts the plugin. {dir} in it, or in Env, is replaced by the
	// directory in which the plugin must make its socket.
	Command []string
	Env     []string
	// Unmeasurable are arguments with which the plugin cannot measure, such as the
	// path of a file that does not exist; empty: that is not examined.
	Unmeasurable []string
	// Pods of the questions; empty: MadePods.
	Pods []*corev1.Pod
	// Timeout of a call.
	Timeout time.Duration
	// StartTimeout is how long the command has to listen.
	StartTimeout time.Duration
}

// DefaultTimeout is how long the agent and Katalyst wait for one call.
const DefaultTimeout = 10 * time.Second

// DefaultStartTimeout is how long a command has to listen.
const DefaultStartTimeout = 15 * time.Second

const (
	// topN is how many pods the agent asks for by default.
	topN = 5
	// Ordinary rounds are repeated for some time, so that a percentile means
	// something.
	mostRounds = 50
	roundsTime = 2 * time.Second
	// atOnce is how many calls of each method run at the same time.
	atOnce = 8
	// stopTime is how long a stopped plugin is waited for.
	stopTime = time.Second
)

// Test examines a plugin. An error means that it could not be examined at all.
func Test(ctx context.Context, o Options) (Report, error) {
	seen, err := observe(ctx, o)
	if err != nil {
		return Report{}, err
	}
	return Evaluate(seen), ctx.Err()
}

func observe(ctx context.Context, o Options) (seen Observations, err error) {
	s := &session{Options: o, before: map[string]bool{}}
	defer s.end()
	s.seen.Started, s.seen.Socket, s.seen.CallLimit = o.Socket == "", o.Socket, o.Timeout
	if len(s.Pods) == 0 {
		s.Pods = MadePods(time.Now())
	}
	if s.pods, err = encode(s.Pods); err != nil {
		return seen, err
	}
	if err := s.directory(); err != nil {
		return seen, err
	}
	if s.seen.First, err = s.open(ctx); err != nil {
		return seen, err
	}
	if s.seen.First.Error != "" {
		s.seen.GaveUp = "it was not registered"
	}
	for _, step := range []func(context.Context){
		s.ordinary, s.odd, s.hostile, s.concurrent, s.stop, s.newHost, s.restart, s.kill, s.unmeasurable,
	} {
		step(ctx)
	}
	return s.seen, nil
}

// directory makes the directory of the command's socket.
func (s *session) directory() (err error) {
	if s.Socket == "" {
		s.dir, err = os.MkdirTemp("", "plugin-")
	}
	return err
}

func (s *session) ordinary(ctx context.Context) {
	begun := time.Now()
	for i := 0; s.ready(ctx) && i < mostRounds && (i < topN || time.Since(begun) < roundsTime); i++ {
		s.round(ctx, Ordinary, shape{pods: s.pods, topN: topN})
	}
}

// odd asks questions that each host asks at some time.
func (s *session) odd(ctx context.Context) {
	s.round(ctx, Empty, shape{topN: topN})
	s.round(ctx, Ordinary, shape{pods: s.pods, topN: topN})
	s.round(ctx, Stale, shape{pods: s.remaining(), topN: topN, always: true})
	s.round(ctx, Huge, shape{pods: filledTo(s.pods, messageLimit-hostMargin), topN: topN})
	s.round(ctx, AtLimit, shape{pods: filledTo(s.pods, messageLimit), noTop: true})
	for i := range uint64(3) {
		s.round(ctx, Ordinary, shape{pods: s.pods, topN: i, always: true})
	}
}

// remaining is the pods without those that were named last, or without the first
// half.
func (s *session) remaining() []pod {
	gone := map[string]bool{}
	for _, c := range s.seen.Calls[max(0, len(s.seen.Calls)-3):] {
		for _, uid := range c.Answer.Named {
			gone[uid] = true
		}
	}
	if len(gone) == 0 || len(gone) >= len(s.pods) {
		return s.pods[len(s.pods)/2:]
	}
	return slices.DeleteFunc(slices.Clone(s.pods), func(p pod) bool { return gone[p.uid] })
}

// hostile asks what no host should ask.
func (s *session) hostile(ctx context.Context) {
	s.round(ctx, UnknownFields, shape{pods: withUnknownFields(s.pods), topN: topN, always: true, unknown: unknownFields()})
	s.round(ctx, UnknownValues, shape{pods: withUnknownValues(s.pods), topN: topN, always: true, records: strangeRecords(s.pods)})
	s.round(ctx, NoUID, shape{pods: withoutUID(s.pods), topN: topN, always: true})
	s.round(ctx, AbsurdTop, shape{pods: s.pods, topN: math.MaxUint64, always: true})
	s.round(ctx, UnknownScope, shape{pods: s.pods, topN: topN, always: true, scope: "/no/such/scope\n\x7f"})
	pods := s.show(s.pods)
	for _, method := range []string{getEvictPods, thresholdMet, getTop} {
		s.call(ctx, Call{Question: NoMessage, Method: method}, []byte{0x0a, 0xff, 0xff, 0xff, 0xff}, &wire.Empty{}, pods)
	}
	s.call(ctx, Call{Question: UnknownMethod, Method: noMethod}, &wire.Empty{}, &wire.Empty{}, pods)
	s.round(ctx, Ordinary, shape{pods: s.pods, topN: topN}) // whether it still answers
}

// concurrent makes calls at the same time, as two hosts of one plugin do.
func (s *session) concurrent(ctx context.Context) {
	if !s.ready(ctx) {
		return
	}
	pods, raw := s.show(s.pods), bytesOf(s.pods)
	calls := make(chan Call, 2*atOnce)
	var all sync.WaitGroup
	ask := func(method string, request, answer proto.Message) {
		all.Go(func() {
			calls <- s.invoke(ctx, Call{Question: Concurrent, Method: method}, s.Timeout, request, answer, pods)
		})
	}
	for range atOnce {
		ask(getEvictPods, &wire.GetEvictPodsRequest{ActivePods: raw}, &wire.GetEvictPodsResponse{})
		ask(thresholdMet, &wire.GetThresholdMetRequest{ActivePods: raw}, &wire.ThresholdMetResponse{})
	}
	all.Wait()
	close(calls)
	for c := range calls {
		s.record(c)
	}
}

// stop stops the process for a moment, as a node under pressure does, and asks
// over the same connection again.
func (s *session) stop(ctx context.Context) {
	if s.process == nil || !s.ready(ctx) {
		return
	}
	s.process.pause(s.link.peer.Pid)
	c := s.invoke(ctx, Call{Question: Stopped, Method: thresholdMet}, stopTime,
		&wire.GetThresholdMetRequest{ActivePods: bytesOf(s.pods)}, &wire.ThresholdMetResponse{}, s.show(s.pods))
	s.seen.Calls = append(s.seen.Calls, c)
	s.process.resume()
	s.round(ctx, Resumed, shape{pods: s.pods, topN: topN})
}

// newHost ends the connection in the middle of a call, as a host that is killed
// does, and comes back as another host.
func (s *session) newHost(ctx context.Context) {
	if !s.ready(ctx) {
		return
	}
	done := make(chan struct{})
	client := s.client
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		_, _ = wire.NewEvictionPluginClient(client).ThresholdMet(ctx, &wire.GetThresholdMetRequest{ActivePods: bytesOf(s.pods)})
	}()
	s.close()
	<-done
	r, err := s.reconnect(ctx)
	s.seen.AfterNewHost = registered(r, err)
	s.again(ctx, NewHost, s.seen.AfterNewHost)
}

// registered is a registration that may not even have connected.
func registered(r Registration, err error) *Registration {
	if err != nil {
		r.Error = err.Error()
	}
	return &r
}

// again asks a plugin that was registered again.
func (s *session) again(ctx context.Context, q Question, r *Registration) {
	if r.Error != "" {
		s.seen.GaveUp = "it was not registered again: " + r.Error
		return
	}
	s.round(ctx, q, shape{pods: s.pods, topN: topN})
}

// restart ends the process as a container runtime does, and starts it again.
func (s *session) restart(ctx context.Context) {
	if s.process == nil || !s.ready(ctx) {
		return
	}
	begun := time.Now()
	e := &End{Ended: s.process.terminate(endTime), Took: time.Since(begun)}
	if !e.Ended {
		s.process.kill()
	}
	_ = s.process.signalAll(syscall.SIGKILL) // children that outlived it would answer in its place
	e.Status = s.process.status()
	_, err := os.Lstat(s.seen.Socket)
	e.SocketStays = err == nil
	s.seen.Terminated = e
	s.close()
	r, err := s.open(ctx)
	s.seen.AfterRestart = registered(r, err)
	s.again(ctx, Restarted, s.seen.AfterRestart)
}

// kill kills the process, which leaves its socket, and starts it again.
func (s *session) kill(ctx context.Context) {
	if s.process == nil || !s.ready(ctx) {
		return
	}
	s.process.kill()
	s.close()
	r, err := s.open(ctx)
	s.seen.AfterKill = registered(r, err)
	s.again(ctx, Killed, s.seen.AfterKill)
}

// unmeasurable starts the plugin where it cannot measure, and asks.
func (s *session) unmeasurable(ctx context.Context) {
	if s.process == nil || len(s.Unmeasurable) == 0 || !s.ready(ctx) {
		return
	}
	s.process.kill()
	s.close()
	s.Command = slices.Concat(s.Command, s.Unmeasurable)
	r, err := s.open(ctx)
	s.seen.WithoutMeasurement = registered(r, err)
	if s.seen.WithoutMeasurement.Error == "" {
		s.round(ctx, Unmeasurable, shape{pods: s.pods, noTop: true})
	}
}
