package outer

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	wire "github.com/plimsoll-dev/plimsoll/plugins/v1alpha1"
)

var (
	// errOtherKind: the socket is no eviction plugin's; it is told once.
	errOtherKind = errors.New("not an eviction plugin")
	// errRefused: it is one, and may not be registered as things are.
	errRefused = errors.New("refused")
	// errNoSocket: it has gone, or another one has taken its place.
	errNoSocket = errors.New("the socket was removed or replaced")
)

// register is one life of a plugin: it returns why it is not registered, or
// errGone once it was and is not any more.
func (s *socket) register() error {
	l, err := connect(s.there, s.path)
	if err != nil {
		s.say(err.Error())
		return err
	}
	defer l.Close()
	if l.file != s.file {
		return errNoSocket // another one has come meanwhile
	}
	client := registration.NewRegistrationClient(l)
	info, err := getInfo(s.there, client)
	if err != nil {
		s.say(err.Error())
		return err
	}
	p, err := s.admit(l, info)
	if err != nil {
		s.say(err.Error())
		tell(s.there, client, err)
		return err
	}
	defer s.host.release(p)
	s.say("")
	tell(p.ctx, client, nil)
	s.host.Log.Info("plugin registered", "plugin", p.name, "socket", s.path, "uid", l.peer.Uid, "pid", l.peer.Pid)
	p.live()
	s.host.Log.Info("plugin unregistered", "plugin", p.name, "socket", s.path)
	return errGone
}

func getInfo(ctx context.Context, client registration.RegistrationClient) (*registration.PluginInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := client.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("GetInfo: %w", short(err))
	}
	return info, nil
}

// tell a plugin what became of it. One that does not want to know is
// registered all the same.
func tell(ctx context.Context, client registration.RegistrationClient, why error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status := &registration.RegistrationStatus{PluginRegistered: why == nil}
	if why != nil {
		status.Error = why.Error()
	}
	_, _ = client.NotifyRegistrationStatus(ctx, status)
}

// admit checks who it is and claims its name.
func (s *socket) admit(l *link, info *registration.PluginInfo) (*plugin, error) {
	ctx, c := s.there, s.host.Settings()
	switch {
	case info.GetType() != pluginType:
		return nil, fmt.Errorf("%w: type %q, want %q", errOtherKind, clip(info.GetType()), pluginType)
	case !slices.Contains(info.GetSupportedVersions(), pluginVersion):
		return nil, fmt.Errorf("%w: versions %q, want %s", errRefused, clip(strings.Join(info.GetSupportedVersions(), ",")), pluginVersion)
	case !validName(info.GetName()):
		return nil, fmt.Errorf("%w: name %q: want up to 128 letters, digits, and . _ - /", errRefused, clip(info.GetName()))
	case slices.Contains(s.host.Reserved, info.GetName()):
		return nil, fmt.Errorf("%w: name %q is taken by a built-in plugin", errRefused, info.GetName())
	}
	p := &plugin{host: s.host, socket: s, name: info.GetName(), since: time.Now(), uid: l.peer.Uid, link: l, endpoint: l}
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
	p.process = l.who()
	if p.endpoint != l {
		p.process += " " + p.endpoint.who()
	}
	p.client = wire.NewEvictionPluginClient(p.endpoint)
	if err := p.authenticate(ctx, c); err != nil {
		p.closeEndpoint()
		return nil, err
	}
	if err := s.host.claim(ctx, p); err != nil {
		p.closeEndpoint()
		return nil, err
	}
	return p, nil
}

// allowed says whether configuration lets a plugin be asked: when it comes, and
// while it is there.
func (p *plugin) allowed(c Config) error {
	if len(c.Names) > 0 && !slices.Contains(c.Names, p.name) {
		return fmt.Errorf("%w: name %q is not in plugins.names", errRefused, p.name)
	}
	if !within(c.Dirs, p.socket.path) {
		return fmt.Errorf("%w: its socket is %w", errRefused, errOutside)
	}
	return cmp.Or(p.link.allowed(c), p.endpoint.allowed(c))
}

func (l *link) allowed(c Config) error {
	if uid := strconv.FormatUint(uint64(l.peer.Uid), 10); !slices.Contains(c.Uids, uid) {
		return fmt.Errorf("%w: user %s is not in plugins.uids", errRefused, uid)
	}
	return nil
}

var errOutside = errors.New("not inside a directory of plugins.dirs")

// endpoint connects to another socket than the one that was found.
func (s *socket) endpoint(ctx context.Context, c Config, p *plugin, endpoint string) error {
	path, err := inside(c.Dirs, endpoint)
	if err != nil {
		return fmt.Errorf("%w: endpoint %q: %w", errRefused, clip(endpoint), err)
	}
	l, err := connect(ctx, path)
	if err != nil {
		return fmt.Errorf("%w: endpoint %q: %w", errRefused, clip(endpoint), err)
	}
	if err := l.allowed(c); err != nil {
		return errors.Join(err, l.Close())
	}
	p.endpoint = l
	return nil
}

// inside resolves a path, links and all, which must then lie in one of dirs.
func inside(dirs []string, path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", errOutside
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", cause(errors.Unwrap(err))
	}
	if !within(dirs, resolved) {
		return "", errOutside
	}
	return resolved, nil
}

// within says whether a path that has no links lies in one of dirs.
func within(dirs []string, path string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			dir = resolved
		}
		return below(dir, path)
	})
}

// authenticate asks for the token. A plugin without one is as good, unless
// tokens must be shown.
func (p *plugin) authenticate(ctx context.Context, c Config) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := p.client.GetToken(ctx, &wire.Empty{})
	if !c.Strict {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: GetToken: %w", errRefused, short(err))
	}
	if !filepath.IsLocal(p.name) {
		return fmt.Errorf("%w: its name is no valid name of a token file", errRefused)
	}
	want, err := os.ReadFile(filepath.Join(c.TokenDir, p.name))
	if err != nil {
		return fmt.Errorf("%w: token file: %w", errRefused, cause(errors.Unwrap(err)))
	}
	token := strings.TrimSpace(string(want))
	if token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(answer.GetToken())) != 1 {
		return fmt.Errorf("%w: wrong token", errRefused)
	}
	p.process = "token" // which proves more
	return nil
}

// claim takes a name that nobody has, or whose plugin does not answer any more.
func (h *Host) claim(ctx context.Context, p *plugin) error {
	for {
		other, err := h.take(p)
		if other == nil || !other.dead(ctx) {
			return err
		}
		other.cancel()
		select {
		case <-other.released:
		case <-ctx.Done():
			return err
		}
	}
}

// take a name, unless there is another plugin that has it.
func (h *Host) take(p *plugin) (other *plugin, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.socket.wants = ""
	if other := h.live[p.name]; other != nil {
		p.socket.wants = p.name
		return other, fmt.Errorf("%w: name %q is taken by the plugin at %s", errRefused, p.name, other.socket.path)
	}
	if len(h.live) >= maxPlugins {
		return nil, fmt.Errorf("%w: limit reached: %d plugins are registered", errRefused, len(h.live))
	}
	p.released = make(chan struct{})
	h.live[p.name] = p
	h.counts.keep(p.name)
	return nil, nil
}

// release ends a plugin: its name is free, who wants it is woken, and nobody
// asks it any more.
func (h *Host) release(p *plugin) {
	h.mu.Lock()
	delete(h.live, p.name)
	for _, s := range h.sockets {
		if s.wants == p.name {
			select {
			case s.freed <- struct{}{}:
			default:
			}
		}
	}
	h.mu.Unlock()
	close(p.released)
	p.closeEndpoint()
	p.calls.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live[p.name] == nil { // no other has come by this name meanwhile
		h.counts.leave(p.name, time.Now())
	}
}

func validName(name string) bool {
	return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?$`).MatchString(name)
}

// maxText of what a plugin says, in bytes.
const maxText = 256

// clip cuts a text of somebody else's.
func clip(text string) string {
	if len(text) > maxText {
		text = strings.Clone(text[:maxText]) // the rest of a liar's text is not kept
	}
	return strings.ToValidUTF8(text, "")
}

// short is an error of a plugin's in few words.
func short(err error) error { return errors.New(clip(err.Error())) }
