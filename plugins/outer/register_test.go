package outer

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

func TestRegisterWhereverSocketAppears(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	before := newFake("before")
	before.serve(t, w.path("before.sock"))
	w.run().waitFor("before")

	later := newFake("later")
	later.serve(t, w.path("later.sock"))
	w.waitFor("before", "later")

	require.NoError(t, os.MkdirAll(w.path("a/b"), 0o755))
	below := newFake("below")
	below.serve(t, w.path("a/b/below.sock"))
	w.waitFor("before", "below", "later")

	for _, f := range []*fake{before, later, below} {
		eventually(t, "told", func() bool { return len(f.statuses()) > 0 })
		assert.True(t, f.statuses()[0].GetPluginRegistered())
		assert.Empty(t, f.statuses()[0].GetError())
		assert.Equal(t, []string{"GetInfo", "GetToken", "Notify"}, f.calls(), "in this order, once each")
	}
}

func TestRegisterIgnoresDotAndNonSocket(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	require.NoError(t, os.Mkdir(w.path(".hidden"), 0o755))
	dot, inDot, link := newFake("dot"), newFake("in-dot"), newFake("link")
	dot.serve(t, w.path(".dot.sock"))
	inDot.serve(t, w.path(".hidden/x.sock"))
	link.serve(t, filepath.Join(socketDir(t), "far.sock"))
	require.NoError(t, os.WriteFile(w.path("file.sock"), nil, 0o600))
	seen := newFake("seen")
	seen.serve(t, w.path("seen.sock"))
	w.run().waitFor("seen")
	for _, f := range []*fake{dot, inDot, link} {
		assert.Empty(t, f.calls(), f.info.Name)
	}
	require.NoError(t, os.Rename(w.path(".dot.sock"), w.path("dot.sock")), "plugins make theirs so, to be seen when they listen")
	w.waitFor("dot", "seen")
}

func TestRegisterOtherTypeToldFalse(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	reporter := newFake("reporter")
	reporter.info.Type = "ReporterPlugin"
	reporter.serve(t, w.path("reporter.sock"))
	w.run()
	eventually(t, "told", func() bool { return len(reporter.statuses()) == 1 })
	assert.False(t, reporter.statuses()[0].GetPluginRegistered())
	assert.Contains(t, reporter.statuses()[0].GetError(), `type "ReporterPlugin", want "EvictionPlugin"`)
	w.lookAgain()
	good := newFake("good")
	good.serve(t, w.path("good.sock"))
	w.waitFor("good")
	assert.Equal(t, []string{"GetInfo", "Notify"}, reporter.calls())
	next := newFake("next")
	next.serve(t, w.path("reporter.sock")) // another one at its place is looked at
	w.waitFor("good", "next")
}

// lookAgain waits until further attempts would have been made.
func (w *pluginEnv) lookAgain() {
	w.t.Helper()
	extra := newFake("extra")
	for range 3 {
		extra.serve(w.t, w.path("extra.sock"))
		w.waitFor(slices.Sorted(slices.Values(append(without(w.names(), "extra"), "extra")))...)
		extra.kill()
		require.NoError(w.t, os.Remove(w.path("extra.sock")))
		eventually(w.t, "gone", func() bool { return len(without(w.names(), "extra")) == len(w.names()) })
	}
}

func without(list []string, name string) []string {
	var out []string
	for _, n := range list {
		if n != name {
			out = append(out, n)
		}
	}
	return out
}

func TestRegisterRefusedAndRetried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*fake)
		config func(*Config)
		why    string
	}{
		"an unknown version":         {func(f *fake) { f.info.SupportedVersions = []string{"v1beta9"} }, nil, `versions "v1beta9", want v1alpha1`},
		"no version":                 {func(f *fake) { f.info.SupportedVersions = nil }, nil, `versions "", want v1alpha1`},
		"no name":                    {func(f *fake) { f.info.Name = "" }, nil, `name ""`},
		"a name of control codes":    {func(f *fake) { f.info.Name = "a\x1b[2Jb" }, nil, "want up to 128 letters"},
		"a name with an empty part":  {func(f *fake) { f.info.Name = "a//b" }, nil, "no part that is ., .. or empty"},
		"a name with a dot part":     {func(f *fake) { f.info.Name = "a/./b" }, nil, "no part that is ., .. or empty"},
		"an endless name":            {func(f *fake) { f.info.Name = strings.Repeat("x", 5000) }, nil, "want up to 128 letters"},
		"the name of a built-in one": {func(f *fake) { f.info.Name = "memory-stall" }, nil, `name "memory-stall" is taken by a built-in plugin`},
		"a name that is not listed":  {nil, func(c *Config) { c.Names = []string{"other"} }, "not in plugins.names"},
		"a user that is not listed":  {nil, func(c *Config) { c.Uids = []string{"4711"} }, "user 0 is not in plugins.uids"},
		"an endpoint elsewhere":      {func(f *fake) { f.info.Endpoint = "/run/other.sock" }, nil, "endpoint"},
		"an endpoint that is not absolute": {
			func(f *fake) { f.info.Endpoint = "p.sock" }, nil, "not inside a directory of plugins.dirs",
		},
		"no token": {nil, func(c *Config) { c.Strict, c.TokenDir = true, "/nowhere" }, "GetToken"},
		"a token without a file": {
			func(f *fake) { f.token = "x" }, func(c *Config) { c.Strict, c.TokenDir = true, "/nowhere" }, "token file: no such file or directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newPluginEnv(t, func(config *Config) {
				if c.config != nil {
					c.config(config)
				}
			})
			f := newFake("p")
			if c.change != nil {
				c.change(f)
			}
			f.serve(t, w.path("p.sock"))
			begun := time.Now()
			w.run()
			eventually(t, "told twice", func() bool { return len(f.statuses()) >= 2 })
			assert.GreaterOrEqual(t, time.Since(begun), time.Second, "not again and again at once")
			assert.False(t, f.statuses()[0].GetPluginRegistered())
			assert.Contains(t, f.statuses()[0].GetError(), c.why)
			assert.Empty(t, w.names())
			list := w.Status(time.Now())
			require.Len(t, list, 1)
			assert.False(t, list[0].Up)
			assert.Contains(t, list[0].Problem, c.why)
		})
	}
}

func TestRegisterStrictToken(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t, func(c *Config) { c.Strict, c.TokenDir = true, t.TempDir() })
	require.NoError(t, os.WriteFile(filepath.Join(w.config.TokenDir, "good"), []byte("newer\nsecret\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(w.config.TokenDir, "empty"), []byte("\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(w.config.TokenDir, "bad"), []byte("other"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(w.config.TokenDir, "large"), append([]byte("secret\n"), make([]byte, maxTokens)...), 0o600))
	fakes := map[string]*fake{}
	for _, name := range []string{"good", "empty", "bad", "large"} {
		fakes[name] = newFake(name)
		fakes[name].token = "secret"
		fakes[name].serve(t, w.path(name+".sock"))
	}
	fakes["empty"].token, fakes["empty"].showsEmpty = "", true
	outside := newFake("a/../../" + filepath.Base(w.config.TokenDir) + "-outside")
	outside.token = "secret"
	require.NoError(t, os.WriteFile(w.config.TokenDir+"-outside", []byte("secret"), 0o600))
	outside.serve(t, w.path("outside.sock"))
	alias := newFake("x/../good") // else a token would be good for any number of names
	alias.token = "secret"
	alias.serve(t, w.path("alias.sock"))
	w.run().waitFor("good")
	for _, name := range []string{"empty", "bad"} {
		eventually(t, name, func() bool { return len(fakes[name].statuses()) > 0 })
		assert.Equal(t, "refused: wrong token", fakes[name].statuses()[0].GetError())
	}
	eventually(t, "large", func() bool { return len(fakes["large"].statuses()) > 0 })
	assert.Equal(t, "refused: token file: larger than any such file", fakes["large"].statuses()[0].GetError())
	for _, f := range []*fake{outside, alias} {
		eventually(t, f.info.Name, func() bool { return len(f.statuses()) > 0 })
		assert.Contains(t, f.statuses()[0].GetError(), "no part that is ., .. or empty")
	}
	w.round()
	assert.Equal(t, "token", w.registry.plugins()[0].process, "whose process it is says less")
}

func TestRegisterOwnEndpoint(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	outside := filepath.Join(socketDir(t), "x.sock")
	newFake("x").serve(t, outside)
	require.NoError(t, os.Symlink(outside, w.path("link")))
	liar := newFake("liar")
	liar.info.Endpoint = w.path("link")
	liar.serve(t, w.path("liar.sock"))

	require.NoError(t, os.Mkdir(w.path(".service"), 0o755))
	service := newFake("service")
	service.serve(t, w.path(".service/s.sock"))
	front := newFake("front")
	front.info.Endpoint = w.path(".service/s.sock")
	front.serve(t, w.path("front.sock"))
	w.run().waitFor("front")
	w.round()
	assert.Contains(t, service.calls(), "ThresholdMet")
	assert.NotContains(t, front.calls(), "ThresholdMet")
	eventually(t, "told", func() bool { return len(liar.statuses()) > 0 })
	assert.Contains(t, liar.statuses()[0].GetError(), "not inside a directory of plugins.dirs")
	front.kill()
	w.waitFor()
	front.serve(t, w.path("front.sock"))
	w.waitFor("front")
	service.kill()
	w.waitFor()
}

func TestRegisterNameTaken(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	first, second := newFake("p"), newFake("p")
	first.serve(t, w.path("first.sock"))
	w.run().waitFor("p")
	second.serve(t, w.path("second.sock"))
	eventually(t, "told", func() bool { return len(second.statuses()) > 0 })
	assert.Equal(t, `refused: name "p" is taken by the plugin at `+w.path("first.sock"), second.statuses()[0].GetError())
	w.round()
	assert.NotContains(t, second.calls(), "ThresholdMet")
	eventually(t, "told again and again, later and later", func() bool { return len(second.statuses()) > 2 })
	first.kill()
	begun := deadline.Start()
	eventually(t, "registered", second.registered)
	assert.Less(t, begun.Elapsed(), time.Second, "at once, however often it was refused")
	w.waitFor("p")
}

func TestRegisterSilentSocket(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	mute, err := new(net.ListenConfig).Listen(t.Context(), "unix", w.path("a-mute.sock"))
	require.NoError(t, err)
	defer mute.Close()
	good := newFake("good")
	good.serve(t, w.path("good.sock"))
	w.run().waitFor("good")
	eventually(t, "its reason", func() bool {
		list := w.Status(time.Now())
		return len(list) == 2 && strings.Contains(list[1].Problem, "GetInfo")
	})
}

// Every socket is asked, whoever listens.
func TestRegisterLongAnswer(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	long := newFake(strings.Repeat("p", maxRegistration))
	long.serve(t, w.path("p.sock"))
	w.run()
	eventually(t, "its reason", func() bool {
		list := w.Status(time.Now())
		return len(list) == 1 && strings.Contains(list[0].Problem, "larger than max")
	})
}

// A socket may be replaced between scan and connection.
func TestRegisterSocketReplaced(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	first, second := newFake("first"), newFake("second")
	first.serve(t, w.path("p.sock"))
	seen, there := identify(w.path("p.sock"))
	require.True(t, there)
	second.serve(t, w.path("p.sock"))
	s := newSocket(t.Context(), w.Host, w.path("p.sock"), seen)
	defer s.cancelFile()
	require.ErrorIs(t, s.register(), errSocketReplaced)
	assert.Empty(t, second.calls())
}

// So may a link be put in its place while it is connected to.
func TestRegisterSocketHeld(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	first, second := newFake("first"), newFake("second")
	first.serve(t, w.path("p.sock"))
	second.serve(t, w.path(".other"))
	held, err := holdSocket(w.path("p.sock"))
	require.NoError(t, err)
	defer held.close()
	require.NoError(t, os.Remove(w.path("p.sock")))
	require.NoError(t, os.Symlink(w.path(".other"), w.path("p.sock")))
	c, err := held.dial(t.Context())
	require.NoError(t, err)
	assert.Equal(t, w.path("p.sock"), c.RemoteAddr().String(), "the name that it was bound to")
	require.NoError(t, c.Close())
	_, err = holdSocket(w.path("p.sock"))
	require.ErrorIs(t, err, errSocketReplaced)
}

// The user of the endpoint is checked as well as that of the discovered socket.
func TestRegisterEndpointUser(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	service := newFake("service")
	service.serve(t, w.path(".service"))
	s := newSocket(t.Context(), w.Host, w.path("p.sock"), fileIdentity{})
	defer s.cancelFile()
	p := &plugin{}
	w.config.Uids = []string{"4711"}
	require.ErrorContains(t, s.endpoint(t.Context(), w.config, p, w.path(".service")), "user 0 is not in plugins.uids")
	assert.Nil(t, p.endpoint)
	w.config.Uids = []string{"0"}
	require.NoError(t, s.endpoint(t.Context(), w.config, p, w.path(".service")))
	require.NoError(t, p.endpoint.Close())
}

func TestRegisterMaxPlugins(t *testing.T) {
	t.Parallel()
	var r registry
	for i := range maxPlugins {
		_, err := r.take(&plugin{name: fmt.Sprint(i), socket: &socket{}})
		require.NoError(t, err)
	}
	waits := &socket{wake: make(chan struct{}, 1)}
	_, err := r.take(&plugin{name: "another", socket: waits})
	require.EqualError(t, err, "refused: limit reached: 64 plugins are registered")
	r.sockets = map[string]*socket{"waits": waits}
	ended := r.plugins()[0]
	ended.cancel = func() {}
	r.release(ended)
	require.Len(t, waits.wake, 1, "a place is free")
	_, err = r.take(&plugin{name: "another", socket: waits})
	require.NoError(t, err)
	<-waits.wake
	r.retry(func(s *socket) bool { return s.wantedPlace })
	assert.Empty(t, waits.wake)
}

// One program leaves places for others, however many processes it starts.
func TestRegisterMaxPluginsOfListener(t *testing.T) {
	t.Parallel()
	for what, row := range map[string]struct {
		by      func(i int) listener
		limited bool
	}{
		"one process":                {func(int) listener { return listener{pid: 1} }, true},
		"processes of one cgroup":    {func(i int) listener { return listener{pid: i + 1, cgroup: "/pod"} }, true},
		"processes of the root":      {func(i int) listener { return listener{pid: i + 1, cgroup: "/"} }, false},
		"of another PID namespace":   {func(int) listener { return listener{} }, false},
		"each with a cgroup, no PID": {func(i int) listener { return listener{cgroup: fmt.Sprint("/", i)} }, false},
	} {
		t.Run(what, func(t *testing.T) {
			var r registry
			for i := range maxPlugins {
				_, err := r.take(&plugin{name: fmt.Sprint(i), socket: &socket{}, listener: row.by(i)})
				if row.limited && i >= maxOfListener {
					require.EqualError(t, err, "refused: limit reached: 32 plugins of its process or cgroup are registered")
					continue
				}
				require.NoError(t, err)
			}
			_, err := r.take(&plugin{name: "another", socket: &socket{}, listener: listener{pid: 4711, cgroup: "/another"}})
			assert.Equal(t, row.limited, err == nil)
		})
	}
}

// A plugin that hangs up once it is registered would else be registered, and logged, for
// ever.
func TestRegisterHangsUpAtOnce(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t, func(c *Config) { c.Beside = BesideAct })
	var log bytes.Buffer
	w.Log = slog.New(slog.NewTextHandler(&log, nil))
	f := newFake("p")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", w.path("p.sock"))
	require.NoError(t, err)
	cut := &cutting{Listener: l, conns: make(chan net.Conn, 100)}
	f.serveOn(t, cut)
	begun, times := time.Now(), 0
	w.run()
	eventually(t, "some time is over", func() bool {
		if len(f.statuses()) > 0 {
			times++
			f.forget()
			_ = (<-cut.conns).Close()
		}
		return times >= 3 && time.Since(begun) > 2*time.Second
	})
	w.end()
	require.NoError(t, <-w.ended)
	w.ended <- nil
	assert.LessOrEqual(t, strings.Count(log.String(), "plugin registered"), 8, log.String())
	assert.Equal(t, 1, strings.Count(log.String(), "closed its connection before it answered a round"), log.String())
	assert.LessOrEqual(t, strings.Count(log.String(), "plugin unregistered"), 1, "that the host ends")
}

// A plugin's last calls may end after another one took its name.
func TestOuterLateEndKeepsNext(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	come := func() *plugin {
		p := &plugin{host: w.Host, name: "p", socket: &socket{}, cancel: func() {}}
		_, err := w.registry.take(p)
		require.NoError(t, err)
		return p
	}
	first, ends, released := come(), make(chan struct{}), make(chan struct{})
	first.calls.Go(func() { <-ends })
	go func() { defer close(released); w.registry.release(first) }()
	<-first.released
	next := come()
	close(ends)
	<-released
	assert.Equal(t, []*plugin{next}, w.registry.plugins())
	assert.NotContains(t, w.registry.counts.ended, "p", "it is there")
	w.registry.release(next)
	assert.Contains(t, w.registry.counts.ended, "p")
}
