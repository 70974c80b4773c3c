package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/container"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// packaged are the packages of two versions, made once; removed by TestMain's
// directory.
var packaged = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(filepath.Dir(binary), "packages")
	for _, version := range []string{"1.0.0", "1.1.0"} {
		if err := makePackages(dir, version); err != nil {
			return "", err
		}
	}
	return dir, nil
})

// makePackages as a user does. The program is linked once: it says one version,
// the packages theirs.
func makePackages(dir, version string, more ...string) error {
	c := exec.Command("make", append([]string{"-C", "..", "package", "PACKAGES=" + dir, "VERSION=v1.0.0", "PACKAGE_VERSION=" + version}, more...)...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MAKE") { // of the make that runs this test
			c.Env = append(c.Env, v)
		}
	}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("make package: %w\n%s", err, out)
	}
	return nil
}

// host is a system of its own with the packages in /share, which is a directory
// of this host.
type host struct {
	*container.Container
	t        *testing.T
	share    string
	watchdog time.Duration // once the agent has reloaded
}

func startHost(t *testing.T) host {
	t.Helper()
	dir, err := packaged()
	require.NoError(t, err)
	h := host{t: t, share: t.TempDir(), watchdog: deadline.Scale(4 * time.Second)}
	packages, err := filepath.Glob(filepath.Join(dir, "plimsoll*1.*.*"))
	require.NoError(t, err)
	for _, file := range packages {
		require.NoError(t, os.Link(file, filepath.Join(h.share, filepath.Base(file))))
	}
	h.Container = container.Start(t, container.Options{Share: h.share})
	return h
}

// install the package.
func (h host) install() {
	h.t.Helper()
	h.run("dpkg -i /share/plimsoll_1.0.0_*.deb")
	h.asIsCapable()
}

// asIsCapable: a root that has not itself CAP_SYS_RESOURCE, as where these tests
// run, cannot hand it on.
func (h host) asIsCapable() {
	h.t.Helper()
	h.run(`mkdir -p /run/systemd/system/plimsoll-agent.service.d
		printf '[Service]\nRestartSec=100ms\nAmbientCapabilities=\nAmbientCapabilities=CAP_SYS_PTRACE CAP_DAC_OVERRIDE\n' >/run/systemd/system/plimsoll-agent.service.d/test.conf
		systemctl daemon-reload`)
}

func (h host) run(command string) string {
	h.t.Helper()
	out, err := h.Run(h.t.Context(), command)
	require.NoError(h.t, err)
	return strings.TrimSpace(out)
}

// property of the agent's unit.
func (h host) property(name string) string {
	h.t.Helper()
	return h.run("systemctl show --value -p " + name + " plimsoll-agent")
}

// becomes waits for a property to be like this.
func (h host) becomes(name, want string) time.Duration {
	h.t.Helper()
	return within(h.t, patience, name+" is "+want, func() error {
		if got := h.property(name); !strings.Contains(got, want) {
			return errors.New(got)
		}
		return nil
	})
}

// journal of the agent's unit: its fields.
func (h host) journal() (entries []map[string]any) {
	h.t.Helper()
	d := json.NewDecoder(strings.NewReader(h.run("journalctl --sync; journalctl -u plimsoll-agent -o json --all")))
	for d.More() {
		var e map[string]any
		require.NoError(h.t, d.Decode(&e))
		entries = append(entries, e)
	}
	return entries
}

// logged waits for an entry of the agent's own log.
func (h host) logged(message string) (entry map[string]any) {
	h.t.Helper()
	eventually(h.t, "the journal has "+message, func() error {
		for _, e := range h.journal() {
			if e["PLIMSOLL_MESSAGE"] == message {
				entry = e
				return nil
			}
		}
		return errors.New("it has not")
	})
	return entry
}

// configure the agent, whose /proc is /share/proc.
func (h host) configure(more string) {
	h.t.Helper()
	h.configureIn("standalone: true", more)
}

func (h host) configureIn(kubernetes, more string) {
	h.t.Helper()
	h.run("cat >/etc/plimsoll/agent.yaml <<'END'\napiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\nkubernetes: {" + kubernetes + "}\npaths: {procfs: /share/proc}\n" + more + "\nEND\n")
}

// vmstat is a file that each sample reads.
func (h host) vmstat() string { return filepath.Join(h.share, "proc/vmstat") }

// hang vmstat: opening it waits for a writer that never comes.
func (h host) hang() {
	h.t.Helper()
	require.NoError(h.t, os.Remove(h.vmstat()))
	require.NoError(h.t, syscall.Mkfifo(h.vmstat(), 0o644))
}

// answer at last: in the place of the file, and to who waits for it.
func (h host) answer() {
	h.t.Helper()
	require.NoError(h.t, os.Rename(h.vmstat(), h.vmstat()+".hung"))
	copyFile(h.t, "/proc/vmstat", h.vmstat())
	if w, err := os.OpenFile(h.vmstat()+".hung", os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
		require.NoError(h.t, w.Close())
	} // else nobody waits
}

// One agent from its first start to its end, on a system with the package.
func TestAgentUnderSystemd(t *testing.T) {
	t.Parallel()
	h := startHost(t)
	h.install()
	copyProc(t, filepath.Join(h.share, "proc"))
	h.configure("")
	for _, part := range []struct {
		name string
		test func(host)
	}{
		{"is ready with its first sample", readyWithTheFirstSample},
		{"logs facts as fields of the journal", logsFields},
		{"reloads, and says so when a file is wrong", reloads},
		{"is restarted when it stands still", restartedWhenItStandsStill},
		{"is restarted when its loop hangs, and says where", restartedWhenItsLoopHangs},
		{"ends at once and well", endsWell},
		{"serves on a socket of systemd", servesOnASocket},
		{"beats soon after it was restarted", beatsSoonAfterItWasRestarted},
	} {
		ok := t.Run(part.name, func(t *testing.T) { part.test(host{h.Container, t, h.share, h.watchdog}) })
		if !ok {
			t.Log(h.run("journalctl -n 60 --no-pager"))
			return // the next begins where this one should have ended
		}
	}
}

func readyWithTheFirstSample(h host) {
	h.hang()
	h.run("systemctl start --no-block plimsoll-agent")
	h.logged("listening")
	assert.Equal(h.t, "activating", h.property("ActiveState"))
	h.answer()
	h.becomes("ActiveState", "active")
	h.becomes("StatusText", "standalone mode: evictions disabled")
	assert.Equal(h.t, "1min", h.property("WatchdogUSec"))
}

func logsFields(h host) {
	e := h.logged("listening")
	assert.Equal(h.t, "http://127.0.0.1:9773/", e["PLIMSOLL_URL"])
	assert.Equal(h.t, "listening url=http://127.0.0.1:9773/", e["MESSAGE"])
	assert.Equal(h.t, "6", e["PRIORITY"])
	assert.Equal(h.t, "plimsoll", e["SYSLOG_IDENTIFIER"])
	assert.Equal(h.t, "journal", e["_TRANSPORT"], "an entry, not a line of text")
}

func reloads(h host) {
	h.configure("watchdog: 40s")
	h.run("systemctl reload plimsoll-agent")
	h.becomes("WatchdogUSec", "40s")
	h.configure("watchdog: soon")
	h.run("systemctl reload plimsoll-agent")
	h.becomes("StatusText", "the configuration file has errors")
	assert.Equal(h.t, "active", h.property("ActiveState"))
	h.configure(fmt.Sprint("tick: 200ms\nwatchdog: ", h.watchdog))
	h.run("systemctl reload plimsoll-agent")
	h.becomes("WatchdogUSec", h.watchdog.String())
	assert.NotContains(h.t, h.property("StatusText"), "errors")
}

// restarted waits until the agent was restarted more often than before.
func (h host) restarted(before string) time.Duration {
	h.t.Helper()
	return within(h.t, patience, "it is restarted", func() error {
		if h.property("NRestarts") == before {
			return errors.New("not yet")
		}
		return nil
	})
}

func restartedWhenItStandsStill(h host) {
	before, restarts := h.property("MainPID"), h.property("NRestarts")
	h.run("kill -STOP " + before)
	took := h.restarted(restarts)
	h.becomes("ActiveState", "active")
	h.t.Logf("restarted %s after it was stopped (watchdog %s)", took.Round(100*time.Millisecond), h.watchdog)
	assert.GreaterOrEqual(h.t, took, h.watchdog-time.Second, "not sooner than it may be slow")
	assert.NotEqual(h.t, before, h.property("MainPID"))
}

func restartedWhenItsLoopHangs(h host) {
	restarts := h.property("NRestarts")
	h.hang()
	h.restarted(restarts)
	assert.Contains(h.t, h.run("journalctl -u plimsoll-agent --no-pager"), "plimsoll/daemon/agent.(*Agent).sample", "where it hung")
	h.answer()
	h.becomes("ActiveState", "active")
}

func endsWell(h host) {
	h.configure("")
	clock := deadline.Start()
	h.run("systemctl stop plimsoll-agent")
	h.t.Logf("it ended within %s", clock.Passed().Round(10*time.Millisecond))
	assert.Less(h.t, clock.Elapsed(), 10*time.Second)
	assert.Equal(h.t, "inactive success 0", h.property("ActiveState")+" "+h.property("Result")+" "+h.property("ExecMainStatus"))
	assert.Equal(h.t, "gone", h.run("test -e /run/plimsoll || echo gone"))
}

// As the page says it, of an agent that runs.
func servesOnASocket(h host) {
	lines := []string{"systemctl stop plimsoll-agent", "systemctl enable --now plimsoll-agent.socket", "systemctl start plimsoll-agent"}
	require.Contains(h.t, bareMetal(h.t), "\n```\n"+strings.Join(lines, "\n")+"\n```\n")
	h.run("systemctl start plimsoll-agent")
	h.run(lines[0])
	h.run(lines[1])
	assert.Equal(h.t, "inactive", h.property("ActiveState"))
	answer := h.run(`exec 3<>/dev/tcp/127.0.0.1/9773; printf 'GET /-/healthy HTTP/1.0\r\n\r\n' >&3; timeout 30 cat <&3`)
	assert.Contains(h.t, answer, "200 OK")
	h.run(lines[2])
	assert.Equal(h.t, "active", h.property("ActiveState")) // it answers before it is ready
}

// bareMetal is the page about a machine of its own.
func bareMetal(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/install-bare-metal.md")
	require.NoError(t, err)
	return string(text)
}

// join makes the agent one of a real cluster, which it reaches by a relay in its
// own network.
func (h host) join(c *cluster.Cluster, node string) {
	h.t.Helper()
	ctx := contextWithoutCancel(h.t)
	require.NoError(h.t, c.Apply(ctx, deploy.RBAC))
	_, err := c.AddNode(ctx, node, nil)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { assert.NoError(h.t, c.Client.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{})) })
	how, err := c.ServiceAccountConfig(ctx, "plimsoll-system", "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: node})
	require.NoError(h.t, err)
	listener, err := h.Listen(ctx, "127.0.0.1:6443")
	require.NoError(h.t, err)
	kubeconfig, err := c.WriteKubeconfig(node, newPathFrom(h.t, listener, how).config(how))
	require.NoError(h.t, err)
	copyFile(h.t, kubeconfig, filepath.Join(h.share, "kubeconfig"))
	_, block, found := strings.Cut(bareMetal(h.t), "replace `standalone: true` by\n\n```yaml\n")
	require.True(h.t, found)
	block, _, _ = strings.Cut(block, "```")
	block = strings.NewReplacer("/etc/plimsoll/agent.kubeconfig", "/share/kubeconfig", "NODE", node, "\n", ",").Replace(block)
	h.configureIn(block, fmt.Sprint("tick: 200ms\nwatchdog: ", h.watchdog))
}

// The interval is that of production, and so is when in it a node beats first.
func beatsSoonAfterItWasRestarted(h host) {
	const node = "restarted-110" // among the last to beat: 2 s after its start
	c := cluster.Shared(h.t, cluster.Options{})
	seen := newWitness(h.t, c)
	h.join(c, node)
	h.run("systemctl restart plimsoll-agent")
	renewed := func(after time.Time) (first sighting) {
		within(h.t, patience, "the Lease is renewed", func() error {
			list := seen.of(node)
			i := slices.IndexFunc(list, func(s sighting) bool { return s.at.After(after) })
			if i < 0 {
				return fmt.Errorf("%d times before %s", len(list), after)
			}
			first = list[i]
			return nil
		})
		return first
	}
	renewed(time.Now())
	restarts := h.property("NRestarts")
	stopped := time.Now()
	h.run("kill -STOP " + h.property("MainPID"))
	h.restarted(restarts)
	clock := deadline.Start()
	h.becomes("ActiveState", "active")
	started, err := time.Parse("Mon 2006-01-02 15:04:05.999999 MST", h.run("TZ=UTC systemctl show --timestamp=us --value -p ExecMainStartTimestamp plimsoll-agent"))
	require.NoError(h.t, err)
	require.True(h.t, started.After(stopped))
	took := renewed(started).at.Sub(started)
	h.t.Logf("started %s after it was stopped (watchdog %s), renewed %s after that", started.Sub(stopped).Round(10*time.Millisecond), h.watchdog, took.Round(10*time.Millisecond))
	assert.Less(h.t, took, clock.Stretch(2*5*time.Second), "promised: 5 s")
}
