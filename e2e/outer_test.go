package e2e_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/e2e/rawplugin"
)

// The plugin is there before the agent; it is HTTP/2 frames by hand, without
// gRPC or anything of ours.
func TestOuterPluginBareWire(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	raw, listener := serveRaw(t, dir)
	a := prepare(t, "--plugins.dir", dir, "--config", configFile(t, "eviction: {round: 1s}\n")).start()
	a.lists(`raw +outer +yes +/dev/raw \(a scope of any text\) +hard +plimsoll.dev/RawPressure`)
	called(t, raw, "/pluginregistration.Registration/", "GetInfo", "NotifyRegistrationStatus")
	called(t, raw, "/evictionplugin.v1alpha1.EvictionPlugin/", "GetToken", "GetEvictPods", "ThresholdMet", "GetTopEvictionPods")
	is, why := raw.Registered()
	assert.True(t, is, why)

	require.NoError(t, listener.Close())
	a.listsNot(`(?m)^raw `)
}

// called waits until these methods are the first of a service that a plugin was asked for.
// The two services have no order: a round may begin before a plugin is notified.
func called(t *testing.T, raw *rawplugin.Plugin, service string, methods ...string) {
	t.Helper()
	eventually(t, "the plugin is called", func() error {
		var got []string
		for _, call := range raw.Calls() {
			if method, is := strings.CutPrefix(call, service); is && len(got) < len(methods) {
				got = append(got, method)
			}
		}
		if !slices.Equal(got, methods) {
			return fmt.Errorf("%s: %q", service, got)
		}
		return nil
	})
}

// serveRaw serves a plugin that says hard until the listener is closed.
func serveRaw(t *testing.T, dir string) (*rawplugin.Plugin, net.Listener) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(dir, "raw.sock"))
	require.NoError(t, err)
	raw := &rawplugin.Plugin{Name: "raw", Level: 2}
	served := make(chan error, 1)
	go func() { served <- raw.Serve(listener) }()
	t.Cleanup(func() {
		_ = listener.Close() // it may be by then
		require.NoError(t, <-served)
	})
	return raw, listener
}

// What a vendor would do: build it, start it beside an agent, look, end it.
func TestOuterPluginExampleAsDocumented(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := prepare(t, "--plugins.dir", dir, "--config", configFile(t, "eviction: {round: 1s}\n")).start()
	said := &live.Output{}
	cmd := exec.CommandContext(t.Context(), openFiles(t), "--plugins.dir", dir, "--soft", "0", "--hard", "2")
	cmd.Stderr = said
	require.NoError(t, cmd.Start())
	a.lists(`open-files +outer +yes +node +soft +plimsoll.dev/OpenFilesPressure`)
	eventually(t, "it says that it is registered", func() error {
		if !strings.Contains(said.String(), "registered with the agent") {
			return errors.New(said.String())
		}
		return nil
	})
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait(), said.String())
	a.listsNot(`open-files`)
	assert.NoFileExists(t, filepath.Join(dir, "open-files.sock"))
}

// lists waits until `plimsoll plugins` has such a line.
func (a *agent) lists(line string) {
	a.t.Helper()
	eventually(a.t, line+" is listed", func() error {
		_, out, stderr := run(a.t, "plugins", "--api.socket", a.socket)
		if !regexp.MustCompile(line).MatchString(out) {
			return fmt.Errorf("%s%s", out, stderr)
		}
		return nil
	})
}

// listsNot waits until it has not.
func (a *agent) listsNot(line string) {
	a.t.Helper()
	eventually(a.t, line+" is listed no more", func() error {
		_, out, _ := run(a.t, "plugins", "--api.socket", a.socket)
		if regexp.MustCompile(line).MatchString(out) {
			return errors.New(out)
		}
		return nil
	})
}
