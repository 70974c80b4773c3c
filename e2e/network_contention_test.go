package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// wire is a machine with one NIC whose driver knows no speed, in files that the
// test writes: no link of this machine could be filled for it.
type wire struct {
	t                       *testing.T
	proc, sys               string
	bytes, segments, resent uint64
	last                    time.Time
}

func newWire(t *testing.T) *wire {
	t.Helper()
	w := &wire{t: t, proc: filepath.Join(t.TempDir(), "proc"), sys: t.TempDir(), last: time.Now()}
	copyProc(t, w.proc)
	for name, text := range map[string]string{"ifindex": "2", "address": "02:00:00:00:00:01", "speed": "-1", "carrier": "1", "type": "1", "device/vendor": "0x1af4"} {
		write(t, filepath.Join(w.sys, "class/net/eth0", name), text+"\n")
	}
	require.NoError(t, os.MkdirAll(filepath.Join(w.sys, "block"), 0o755))
	w.carry(0, 0)
	return w
}

// carry goes on from the last call with shares of 8 Mbit/s and of the segments.
func (w *wire) carry(load, again float64) {
	w.t.Helper()
	now := time.Now()
	seconds := now.Sub(w.last).Seconds()
	w.last = now
	segments := uint64(seconds * 10_000)
	w.bytes += uint64(load * seconds * 1_000_000)
	w.segments += segments
	w.resent += uint64(again * float64(segments))
	w.file("dev", fmt.Sprintf("Inter-| Receive\n face |bytes\n  eth0: 0 0 0 0 0 0 0 0 %d 0 0 0 0 0 0 0\n", w.bytes))
	w.file("snmp", fmt.Sprintf("Tcp: OutSegs RetransSegs\nTcp: %d %d\n", w.segments, w.resent))
}

// file is put in place at once: no read sees a part of it.
func (w *wire) file(name, text string) {
	path := filepath.Join(w.proc, "1/net", name)
	write(w.t, path+".new", text)
	require.NoError(w.t, os.Rename(path+".new", path))
}

// until carries on until the verdict of eth0 is as it should be.
func (w *wire) until(a *agent, what string, load, again float64, is func(plugins.Verdict) bool) (v plugins.Verdict) {
	w.t.Helper()
	took := within(w.t, patience, what, func() error {
		w.carry(load, again)
		list := a.ticked(1).pressure().Verdicts
		i := slices.IndexFunc(list, func(v plugins.Verdict) bool { return v.Plugin == "network-contention" })
		if i < 0 {
			return errors.New("no verdict")
		}
		if v = list[i]; !is(v) {
			return errors.New(v.Reason)
		}
		return nil
	})
	w.t.Logf("%s after %s: %s", what, took.Round(time.Millisecond), v.Reason)
	return v
}

func TestNetworkContentionNeedsLinkSpeed(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	text := func(devices string) string {
		return "apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\ntick: 200ms\nwindow: 1s\nworkloads: {roots: [/plimsoll-none]}\n" +
			"network: {devices: [" + devices + "]}\nplugins: {warmUp: 0s, networkContention: {window: 2s, clearFor: 1s}}\n"
	}
	file := write(t, filepath.Join(t.TempDir(), "agent.yaml"), text(""))
	a := startAgent(t, "--path.procfs", w.proc, "--path.sysfs", w.sys, "--config", file)
	a.ticked(3)
	assert.Contains(t, a.mustGet("/api/v1/pressure"), "its speed is unknown")

	write(t, file, text("{name: eth0, speed: 8}"))
	v := w.until(a, "soft", 1, 0.05, func(v plugins.Verdict) bool { return v.Level == plugins.Soft })
	assert.Equal(t, "eth0", v.Scope)
	assert.Equal(t, "NetworkContention", v.Condition)
	assert.Contains(t, v.Reason, "eth0 transmit utilization")
	assert.Empty(t, v.Candidates)
	assert.Equal(t, "soft", a.pressure().Levels["network"])
	w.until(a, "busy", 1, 0, func(v plugins.Verdict) bool { return v.Level == plugins.None && v.Absent == "" })
	w.until(a, "soft again", 1, 0.05, func(v plugins.Verdict) bool { return v.Level == plugins.Soft })
	w.until(a, "calm", 0.1, 0.05, func(v plugins.Verdict) bool { return v.Level == plugins.None && v.Absent == "" })
}
