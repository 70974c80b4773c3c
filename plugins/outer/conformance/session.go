package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-dev/plimsoll/katalyst"
	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
)

const (
	servicePrefix = "/evictionplugin.v1alpha1.EvictionPlugin/"
	// tries is how often an unanswered registration is repeated, and how many
	// unanswered calls in a row, or ended connections, end the questions.
	tries = 3
	// reconnectTime is how long a plugin that ended its connection has to listen
	// again.
	reconnectTime = 5 * time.Second
	// endTime is how long a process has to end after SIGTERM.
	endTime = 10 * time.Second
)

// session is one plugin while it is examined.
type session struct {
	Options
	seen    Observations
	dir     string   // of the command's socket
	process *process // nil: it was not started here
	link    *connection
	client  *connection // its endpoint: link, or a connection of its own
	pods    []pod
	before  map[string]bool // UIDs of all pods that were shown
	late    int             // calls in a row without an answer
}

// open connects to the plugin, starts it first if it is a command, and registers
// it.
func (s *session) open(ctx context.Context) (Registration, error) {
	if s.Socket != "" {
		return s.reconnect(ctx)
	}
	p, err := start(ctx, s.Command, s.Env, s.dir)
	if err != nil {
		return Registration{}, err
	}
	s.process = p
	path, link, err := p.waitForSocket(ctx, s.dir, s.StartTimeout)
	if err != nil {
		return Registration{}, err
	}
	s.seen.Socket = path
	served := time.Since(p.begun)
	r := s.register(ctx, link)
	if r.Error != "" || r.Refusal != "" { // it may be the endpoint of a plugin with two sockets
		found, _ := sockets(s.dir)
		for _, other := range found {
			if other == path {
				continue
			}
			if link, err := connect(ctx, other); err == nil {
				s.seen.Socket = other
				r = s.register(ctx, link)
			}
		}
	}
	r.SecondsToServe = served.Seconds()
	return r, nil
}

// reconnect connects to the socket of a plugin that runs, and registers it.
func (s *session) reconnect(ctx context.Context) (Registration, error) {
	for begun := time.Now(); ; {
		link, err := connect(ctx, s.seen.Socket)
		if err == nil {
			return s.register(ctx, link), nil
		}
		if time.Since(begun) > reconnectTime || ctx.Err() != nil {
			return Registration{}, err
		}
		time.Sleep(mostOften)
	}
}

// register makes the calls of a registration over a new connection.
func (s *session) register(ctx context.Context, link *connection) Registration {
	s.close()
	s.link, s.client = link, link
	client := registration.NewRegistrationClient(link)
	var info *registration.PluginInfo
	err := errors.New("not asked")
	for try := 0; err != nil && try < tries && !link.ended(0); try++ {
		err = within(ctx, func(ctx context.Context) (err error) {
			info, err = client.GetInfo(ctx, &registration.InfoRequest{})
			return err
		})
	}
	r := Registration{
		Type: katalyst.Clip(info.GetType()), Name: katalyst.Clip(info.GetName()), Endpoint: katalyst.Clip(info.GetEndpoint()),
		User: link.peer.Uid, Process: link.peer.Pid,
	}
	if err != nil {
		r.Error = "GetInfo: " + words(err)
		return r
	}
	if err := katalyst.CheckInfo(info); err != nil {
		r.Refusal = err.Error()
	}
	for _, v := range info.GetSupportedVersions()[:min(maxKept, len(info.GetSupportedVersions()))] {
		r.Versions = append(r.Versions, katalyst.Clip(v))
	}
	if r.Endpoint != "" && r.Endpoint != s.seen.Socket {
		if s.client, err = connect(ctx, r.Endpoint); err != nil {
			s.client, r.EndpointError = link, err.Error()
		}
	}
	r.Token = s.token(ctx)
	if err := within(ctx, func(ctx context.Context) error {
		_, err := client.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: true})
		return err
	}); err != nil {
		r.StatusError = words(err)
	}
	return r
}

func (s *session) token(ctx context.Context) string {
	var token *wire.GetTokenResponse
	err := within(ctx, func(ctx context.Context) (err error) {
		token, err = wire.NewEvictionPluginClient(s.client).GetToken(ctx, &wire.Empty{})
		return err
	})
	switch {
	case err != nil:
		return words(err)
	case token.GetToken() == "":
		return "empty"
	}
	return "present"
}

func within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, registrationTimeout)
	defer cancel()
	return do(ctx)
}

// words is an error of a call, cut and quoted where the plugin wrote it.
func words(err error) string {
	s := status.Convert(err)
	return fmt.Sprintf("%s %q", s.Code(), katalyst.Clip(s.Message()))
}

// ready reports whether the plugin can be asked. It connects again if the plugin
// ended its connection, and starts the process again if it ended.
func (s *session) ready(ctx context.Context) bool {
	if ctx.Err() != nil || s.seen.GaveUp != "" {
		return false
	}
	if s.client != nil && !s.client.ended(0) && !s.link.ended(0) {
		return true
	}
	if s.client != nil {
		s.lost("between two calls")
	}
	if len(s.seen.Endings) > tries {
		s.seen.GaveUp = fmt.Sprintf("its connection ended %d times", len(s.seen.Endings))
		return false
	}
	open := s.reconnect
	if s.process != nil && s.process.ended() {
		open = s.open
	}
	r, err := open(ctx)
	switch {
	case err != nil:
		s.seen.GaveUp = "after its connection ended: " + err.Error()
	case r.Error != "":
		s.seen.GaveUp = "after its connection ended: " + r.Error
	}
	return s.seen.GaveUp == ""
}

// lost records that the plugin ended its connection.
func (s *session) lost(during string) {
	how := during
	if s.process != nil {
		select {
		case <-s.process.done:
			how += ", and the process ended (" + s.process.status() + ")"
		case <-time.After(100 * time.Millisecond): // it may be about to end
		}
	}
	s.seen.Endings = append(s.seen.Endings, how)
	s.close()
}

func (s *session) close() {
	if s.client != nil && s.client != s.link {
		_ = s.client.Close() // it has nothing to say
	}
	if s.link != nil {
		_ = s.link.Close()
	}
	s.link, s.client = nil, nil
}

func (s *session) end() {
	s.close()
	if s.process != nil {
		s.process.kill()
	}
	_ = os.RemoveAll(s.dir) // "" removes nothing
}

// show returns the UIDs of pods that are about to be shown, and remembers them.
func (s *session) show(pods []pod) shown {
	now := make(map[string]bool, len(pods))
	for _, p := range pods {
		now[p.uid], s.before[p.uid] = true, true
	}
	return shown{now, s.before}
}

// invoke makes one call; request is a message or bytes.
func (s *session) invoke(ctx context.Context, c Call, limit time.Duration, request any, answer proto.Message, pods shown) Call {
	client := s.client
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var options []grpc.CallOption
	if _, raw := request.([]byte); raw {
		options = append(options, grpc.ForceCodec(bytesCodec{}))
	}
	begun := time.Now()
	err := client.Invoke(ctx, servicePrefix+c.Method, request, answer, options...)
	c.Took = time.Since(begun)
	switch {
	case err == nil:
		c.Outcome, c.Answer = Answered, read(answer, pods)
		return c
	case ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded && c.Took > limit*9/10: // the plugin's clock may be ahead
		c.Outcome = Late
	case status.Code(err) == codes.Unimplemented:
		c.Outcome = Unimplemented
	case client.ended(endWait(err)):
		c.Outcome = Broken
	default:
		c.Outcome = Refused
	}
	c.Error = words(err)
	return c
}

// endWait is how long the end of a connection is waited for after an error.
func endWait(err error) time.Duration {
	if status.Code(err) == codes.Unavailable {
		return 200 * time.Millisecond
	}
	return 0
}

// record keeps a call, and gives up on a plugin that does not answer.
func (s *session) record(c Call) {
	s.seen.Calls = append(s.seen.Calls, c)
	switch c.Outcome {
	case Late:
		if s.late++; s.late >= tries {
			s.seen.GaveUp = fmt.Sprintf("%d calls in a row had no answer within %s", s.late, s.Timeout)
		}
	case Broken:
		if s.client != nil {
			s.lost(fmt.Sprintf("during %s (question: %s)", c.Method, c.Question))
		}
	default:
		s.late = 0
	}
}

// call makes one call and records it.
func (s *session) call(ctx context.Context, c Call, request any, answer proto.Message, pods shown) {
	if s.ready(ctx) {
		s.record(s.invoke(ctx, c, s.Timeout, request, answer, pods))
	}
}

// last returns the last call that was recorded.
func (s *session) last() Call {
	if len(s.seen.Calls) == 0 {
		return Call{}
	}
	return s.seen.Calls[len(s.seen.Calls)-1]
}

// shape is what distinguishes a round from an ordinary one.
type shape struct {
	pods    []pod
	topN    uint64
	scope   string // instead of the plugin's own
	always  bool   // ask for pods although no threshold is met
	noTop   bool
	unknown []byte // fields
	records []*wire.EvictionRecord
}

// round asks a question in the order of the agent's calls.
func (s *session) round(ctx context.Context, q Question, f shape) {
	begun := time.Now()
	pods, raw := s.show(f.pods), bytesOf(f.pods)
	evict := &wire.GetEvictPodsRequest{ActivePods: raw}
	evict.ProtoReflect().SetUnknown(f.unknown)
	s.call(ctx, Call{Question: q, Method: getEvictPods}, evict, &wire.GetEvictPodsResponse{}, pods)
	met := &wire.GetThresholdMetRequest{ActivePods: raw}
	met.ProtoReflect().SetUnknown(f.unknown)
	threshold := &wire.ThresholdMetResponse{}
	s.call(ctx, Call{Question: q, Method: thresholdMet}, met, threshold, pods)
	level := threshold.GetMetType()
	if !f.noTop && (f.always || level == wire.ThresholdMetType_SOFT_MET || level == wire.ThresholdMetType_HARD_MET) {
		top := &wire.GetTopEvictionPodsRequest{ActivePods: raw, TopN: f.topN, EvictionScope: threshold.GetEvictionScope(), CandidateEvictionRecords: f.records}
		if level == wire.ThresholdMetType_SOFT_MET && !f.always {
			top.TopN = 0
		}
		if f.scope != "" {
			top.EvictionScope = f.scope
		}
		if named := s.last().Answer.Named; s.last().Method == thresholdMet && len(named) > 0 {
			only := slices.DeleteFunc(slices.Clone(f.pods), func(p pod) bool { return !slices.Contains(named, p.uid) })
			top.ActivePods, pods = bytesOf(only), s.show(only)
		}
		top.ProtoReflect().SetUnknown(f.unknown)
		s.call(ctx, Call{Question: q, Method: getTop, TopN: top.TopN}, top, &wire.GetTopEvictionPodsResponse{}, pods)
	}
	if (q == Ordinary || q == Huge) && s.seen.GaveUp == "" {
		s.seen.Rounds = append(s.seen.Rounds, time.Since(begun))
	}
}

func bytesOf(pods []pod) [][]byte {
	list := make([][]byte, len(pods))
	for i, p := range pods {
		list[i] = p.bytes
	}
	return list
}
