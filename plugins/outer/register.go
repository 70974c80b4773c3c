package outer

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-dev/plimsoll/files"
	"github.com/plimsoll-dev/plimsoll/katalyst"
	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
)

var (
	// errRefused: it is an eviction plugin that may not be registered at
	// present.
	errRefused = errors.New("refused")
	// errSocketReplaced: the file was removed, or replaced by another socket.
	errSocketReplaced = errors.New("the socket was removed or replaced")
	errHungUp         = errors.New("the plugin closed its connection before it answered a round; it is registered again later, each time after a longer wait")
)

// register connects and registers a plugin, and serves it until it ends. It
// returns the reason why it was not registered; after it was, errDisconnected, or
// errHungUp if it was of no use.
func (s *socket) register() error {
	l, err := connect(s.fileCtx, s.path)
	if err != nil {
		s.host.registry.setListener(s, nil) // its file may have been left behind
		s.report(err.Error())
		return err
	}
	defer l.Close()
	if l.file != s.file {
		return errSocketReplaced // another one has replaced it
	}
	by := listenerOf(s.host.Procfs, l)
	s.host.registry.setListener(s, &by)
	s.host.rivals.heard.add(s.path, by, time.Now())
	if err := s.host.rivals.known().leave(s.host.Settings().Beside, s.path, by); err != nil {
		s.report(err.Error()) // the plugin is not told: it is registered with the rival
		return err
	}
	client := registration.NewRegistrationClient(l)
	info, err := getInfo(s.fileCtx, client, registrationTimeout)
	if err != nil {
		s.report(err.Error())
		return err
	}
	p, err := s.admit(l, by, info)
	if err != nil {
		s.report(err.Error())
		notifyStatus(s.fileCtx, client, err)
		return err
	}
	defer s.host.registry.release(p)
	if !s.hungUp { // else that is told until the plugin is of use
		s.report("")
	}
	notifyStatus(p.ctx, client, nil)
	s.host.Log.Info("plugin registered", "plugin", p.name, "socket", s.path, "uid", l.peer.Uid, "pid", l.peer.Pid)
	if s.hungUp = p.waitForEnd(); s.hungUp {
		s.report(errHungUp.Error())
		return errHungUp
	}
	s.report("")
	s.host.Log.Info("plugin unregistered", "plugin", p.name, "socket", s.path)
	return errDisconnected
}

func getInfo(ctx context.Context, client registration.RegistrationClient, limit time.Duration) (*registration.PluginInfo, error) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	info, err := client.GetInfo(ctx, &registration.InfoRequest{}, grpc.MaxCallRecvMsgSize(maxRegistration))
	if err != nil {
		return nil, newCallError("GetInfo", err, begun, limit)
	}
	return info, nil
}

// notifyStatus notifies a plugin of the result of its registration, and ignores an
// error.
func notifyStatus(ctx context.Context, client registration.RegistrationClient, why error) {
	ctx, cancel := context.WithTimeout(ctx, registrationTimeout)
	defer cancel()
	status := &registration.RegistrationStatus{PluginRegistered: why == nil}
	if why != nil {
		status.Error = why.Error()
	}
	_, _ = client.NotifyRegistrationStatus(ctx, status, grpc.MaxCallRecvMsgSize(maxRegistration))
}

// admit checks the plugin's identity and claims its name.
func (s *socket) admit(l *connection, by listener, info *registration.PluginInfo) (*plugin, error) {
	ctx, c := s.fileCtx, s.host.Settings()
	switch err := katalyst.CheckInfo(info); {
	case errors.Is(err, katalyst.ErrOtherKind):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	p := &plugin{host: s.host, socket: s, name: info.GetName(), since: time.Now(), uid: l.peer.Uid, listener: by, link: l, endpoint: l}
	if err := p.allowed(c); err != nil {
		return nil, err
	}
	p.ctx, p.cancel = context.WithCancel(s.ctx)
	if endpoint := info.GetEndpoint(); endpoint != "" && endpoint != s.path {
		if err := s.endpoint(ctx, c, p, endpoint); err != nil {
			p.closeEndpoint()
			return nil, err
		}
	}
	p.process = l.peerID()
	if p.endpoint != l {
		p.process += " " + p.endpoint.peerID()
	}
	p.client = wire.NewEvictionPluginClient(p.endpoint)
	if err := p.authenticate(ctx, c); err != nil {
		p.closeEndpoint()
		return nil, err
	}
	if err := s.host.registry.claim(ctx, p, c.CallTimeout); err != nil {
		p.closeEndpoint()
		return nil, err
	}
	return p, nil
}

// allowed checks a plugin against the configuration, at registration and after
// each change. A registered one stays while its directory is searched anew: a user that
// may replace the directory must not be able to end it.
func (p *plugin) allowed(c Config) error {
	if len(c.Names) > 0 && !slices.Contains(c.Names, p.name) {
		return fmt.Errorf("%w: name %q is not in plugins.names", errRefused, p.name)
	}
	if !p.host.within(c.Dirs, p.socket.path) {
		return fmt.Errorf("%w: its socket is %w", errRefused, errOutside)
	}
	left := p.host.rivals.known().leave(c.Beside, p.socket.path, p.listener)
	if errors.Is(left, errSearching) {
		left = nil
	}
	return cmp.Or(p.link.allowed(c), p.endpoint.allowed(c), left)
}

// excluded is why a plugin that was registered may be so no more.
func (p *plugin) excluded(c Config) error {
	if c.Strict && p.process != byToken {
		return fmt.Errorf("%w: plugins.strict wants a token, and it presented none", errRefused)
	}
	return p.allowed(c)
}

func (l *connection) allowed(c Config) error {
	if uid := strconv.FormatUint(uint64(l.peer.Uid), 10); !slices.Contains(c.Uids, uid) {
		return fmt.Errorf("%w: user %s is not in plugins.uids", errRefused, uid)
	}
	return nil
}

var errOutside = errors.New("not inside a directory of plugins.dirs")

// endpoint connects to the socket that the plugin gives in its PluginInfo, if
// it is another one.
func (s *socket) endpoint(ctx context.Context, c Config, p *plugin, endpoint string) error {
	path, err := s.resolveInside(c.Dirs, endpoint)
	if err != nil {
		return fmt.Errorf("%w: endpoint %q: %w", errRefused, katalyst.Clip(endpoint), err)
	}
	l, err := connect(ctx, path)
	if err != nil {
		return fmt.Errorf("%w: endpoint %q: %w", errRefused, katalyst.Clip(endpoint), err)
	}
	if err := l.allowed(c); err != nil {
		return errors.Join(err, l.Close())
	}
	p.endpoint = l
	return nil
}

// resolveInside resolves a path with its links, and requires the result to be in one
// of dirs.
func (s *socket) resolveInside(dirs []string, path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", errOutside
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", rootCause(errors.Unwrap(err))
	}
	if !s.host.within(dirs, resolved) {
		return "", errOutside
	}
	return resolved, nil
}

// maxTokens bounds a token file.
const maxTokens = 64 << 10

// authenticate checks the plugin's token if tokens are required. Its file may have
// several, while one is replaced by another.
func (p *plugin) authenticate(ctx context.Context, c Config) error {
	ctx, cancel := context.WithTimeout(ctx, registrationTimeout)
	defer cancel()
	answer, err := p.client.GetToken(ctx, &wire.Empty{}, grpc.MaxCallRecvMsgSize(maxRegistration))
	if !c.Strict {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: GetToken: %w", errRefused, short(err))
	}
	want, err := files.Read(filepath.Join(c.TokenDir, p.name), maxTokens)
	if err != nil {
		return fmt.Errorf("%w: token file: %w", errRefused, rootCause(errors.Unwrap(err)))
	}
	if !slices.ContainsFunc(strings.Fields(string(want)), func(token string) bool {
		return subtle.ConstantTimeCompare([]byte(token), []byte(answer.GetToken())) == 1
	}) {
		return fmt.Errorf("%w: wrong token", errRefused)
	}
	p.process = byToken // which proves more than the socket
	return nil
}

// byToken is the process of a plugin that has presented a token.
const byToken = "token"

// short is a plugin's error, cut to katalyst.MaxText.
func short(err error) error { return errors.New(katalyst.Clip(err.Error())) }
