package e2e_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// output of a tool about a package of version 1.0.0.
func about(t *testing.T, pattern, tool string, args ...string) string {
	t.Helper()
	dir, err := packaged()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(t, err)
	require.Len(t, files, 1)
	out, err := exec.CommandContext(t.Context(), tool, append(args, files[0])...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

const debian, redHat = "plimsoll_1.0.0_*.deb", "plimsoll-1.0.0-*.rpm"

func TestPackagesHoldTheSame(t *testing.T) {
	t.Parallel()
	shipped := []string{
		"/usr/bin/plimsoll", "/etc/plimsoll/agent.yaml", "/etc/plimsoll/controller.yaml",
		"/usr/lib/systemd/system/plimsoll-agent.service", "/usr/lib/systemd/system/plimsoll-controller.service",
		"/usr/lib/systemd/system/plimsoll-agent.socket", "/usr/lib/systemd/system/plimsoll.slice",
		"/usr/lib/sysusers.d/plimsoll.conf", "/usr/lib/tmpfiles.d/plimsoll.conf",
		"/usr/share/man/man1/plimsoll.1.gz", "/usr/share/man/man1/plimsoll-agent.1.gz", "/usr/share/man/man1/plimsoll-config-check.1.gz",
		"/usr/share/bash-completion/completions/plimsoll", "/usr/share/fish/vendor_completions.d/plimsoll.fish",
		"/usr/share/doc/plimsoll/copyright", "/usr/share/doc/plimsoll/deploy/rbac.yaml",
	}
	deb, rpm := about(t, debian, "dpkg-deb", "-c"), about(t, redHat, "rpm", "-qlvp")
	for _, path := range shipped {
		for kind, list := range map[string]string{"deb": deb, "rpm": rpm} {
			line := lineWith(list, path)
			require.NotEmpty(t, line, "%s is not in the %s", path, kind)
			want := "-rw-r--r--"
			if path == "/usr/bin/plimsoll" {
				want = "-rwxr-xr-x"
			}
			assert.True(t, strings.HasPrefix(line, want), line)
			assert.Contains(t, strings.Fields(line)[1]+strings.Join(strings.Fields(line), "/"), "root/root", line)
		}
	}
	assert.Equal(t, "/etc/plimsoll/agent.yaml\n/etc/plimsoll/controller.yaml\n", about(t, redHat, "rpm", "-qcp"), "what an upgrade keeps")
	assert.Equal(t, "localhost", about(t, redHat, "rpm", "-qp", "--qf", "%{BUILDHOST}"), "another machine makes the same bytes")
}

// lineWith is the line of a list that ends with a path.
func lineWith(list, path string) string {
	for line := range strings.Lines(list) {
		if line = strings.TrimSpace(line); strings.HasSuffix(line, path) {
			return line
		}
	}
	return ""
}

func TestPackagesReproducible(t *testing.T) {
	t.Parallel()
	live.Long(t, "the packages are made once more")
	dir, err := packaged()
	require.NoError(t, err)
	again := t.TempDir()
	require.NoError(t, makePackages(again, "1.0.0"))
	for _, pattern := range []string{debian, redHat} {
		assert.Equal(t, digest(t, dir, pattern), digest(t, again, pattern), pattern)
	}
}

func digest(t *testing.T, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(t, err)
	require.Len(t, files, 1)
	b, err := os.ReadFile(files[0])
	require.NoError(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// The units let the programs do little more than they must: at most 2.0 of 10,
// by systemd's own measure.
func TestUnitsHardened(t *testing.T) {
	t.Parallel()
	h := startHost(t)
	h.run("dpkg -i /share/plimsoll_1.0.0_*.deb")
	for _, unit := range []string{"plimsoll-agent.service", "plimsoll-controller.service"} {
		lines := strings.Split(h.run("systemd-analyze security --offline=true --threshold=20 --no-pager "+unit), "\n")
		t.Log(lines[len(lines)-1])
	}
	assert.Empty(t, h.run("systemd-analyze verify --man=no plimsoll-agent.service plimsoll-controller.service plimsoll-agent.socket plimsoll.slice 2>&1"))
}

// What the unit takes away hides nothing from the agent that root sees.
func TestUnitHidesNothingFromAgent(t *testing.T) {
	t.Parallel()
	h := startHost(t)
	h.install()
	h.run("systemctl start plimsoll-agent")
	absent := func(socket string) string {
		var s snapshot.Snapshot
		require.NoError(t, json.Unmarshal([]byte(h.run("plimsoll top --once -o json --api.socket "+socket)), &struct{ Snapshot *snapshot.Snapshot }{&s}))
		return fmt.Sprint(s.Absent)
	}
	want := absent("/nobody/listens") // by top itself, which has waited for rates
	within(t, 30*time.Second, "the agent has rates, too, and sees as much", func() error {
		return wanted(absent("/run/plimsoll/plimsoll.sock"), want)
	})
}

// An administrator installs, configures, upgrades, removes and purges.
func TestPackageLifecycleDeb(t *testing.T) {
	t.Parallel()
	h := startHost(t)
	before := h.files()
	h.lives(func(version string) { h.run("dpkg -i /share/plimsoll_" + version + "_*.deb") })
	h.run("sh /var/lib/dpkg/info/plimsoll.postinst configure 1.1.0") // once more is no harm

	h.run("cp /usr/bin/plimsoll /tmp/plimsoll")
	said := h.run("dpkg -r plimsoll 2>&1")
	assert.NotContains(t, said, "may stay", "what ran standalone has put nothing anywhere")
	assert.Equal(t, "inactive", h.property("ActiveState"))
	h.run("test -e /etc/plimsoll/agent.yaml && test -d /var/lib/plimsoll/state") // kept until the purge
	h.run("systemd-run --quiet --unit other /tmp/plimsoll agent --standalone --state.dir /var/lib/plimsoll/state --api.socket /run/other.sock --web.listen-address 127.0.0.1:9779")
	within(t, 30*time.Second, "another agent uses the state", func() error {
		_, err := h.Run(t.Context(), `grep ":$(stat -c %i /var/lib/plimsoll/state/agent.lock) " /proc/locks`)
		return err
	})
	assert.Contains(t, h.run("dpkg -P plimsoll 2>&1"), "/var/lib/plimsoll stays: another agent uses it")
	h.run("test -s /var/lib/plimsoll/state/agent.lock && systemctl stop other && rm -r /var/lib/plimsoll")
	h.isAsIf(before)
}

// By rpm itself, with a database of its own, whose scripts meet a real systemd;
// all else is THIS DEBIAN'S: no system of Red Hat's kind can be had here.
func TestPackageLifecycleRPM(t *testing.T) {
	t.Parallel()
	h := startHost(t)
	before := h.files()
	const rpm = "rpm --dbpath /tmp/rpm --force-debian "
	_, err := h.Run(t.Context(), rpm+"-i /share/plimsoll-1.0.0-*.rpm")
	require.ErrorContains(t, err, "systemd is needed by plimsoll-1.0.0", "which this database does not know of")
	h.lives(func(version string) { h.run(rpm + "-U --oldpackage --nodeps /share/plimsoll-" + version + "-*.rpm") })
	assert.Equal(t, "plimsoll-1.1.0-1.x86_64", h.run(rpm+"-q plimsoll"))
	assert.Equal(t, "S.5....T.  c /etc/plimsoll/agent.yaml", h.run(rpm+"-V --nodeps plimsoll || true"), "what was configured, and nothing else")

	said := h.run(rpm + "-e plimsoll 2>&1")
	assert.NotContains(t, said, "may stay", "what ran standalone has put nothing anywhere")
	assert.Contains(t, h.run("cat /etc/plimsoll/agent.yaml.rpmsave"), "tick: 2s", "what was configured is nobody's to throw away")
	h.run("rm /etc/plimsoll/agent.yaml.rpmsave && rmdir /etc/plimsoll")
	h.run("rmdir /usr/share/man/man1") // each system has it but this one, which has no manuals
	h.isAsIf(before)
}

// lives from the first install to the last upgrade, with a way back between.
func (h host) lives(install func(version string)) {
	h.t.Helper()
	install("1.0.0")
	h.asIsCapable()
	assert.Equal(h.t, "disabled inactive", h.property("UnitFileState")+" "+h.property("ActiveState"), "nothing starts by surprise")
	h.run("plimsoll config check /etc/plimsoll/agent.yaml && plimsoll config check /etc/plimsoll/controller.yaml && getent group plimsoll && test -s /usr/share/man/man1/plimsoll.1.gz")

	h.run("systemctl enable --now plimsoll-agent")
	h.run("echo 'tick: 2s' >>/etc/plimsoll/agent.yaml")
	pid := h.property("MainPID")
	install("1.1.0")
	assert.Equal(h.t, "enabled active", h.property("UnitFileState")+" "+h.property("ActiveState"))
	assert.NotEqual(h.t, pid, h.property("MainPID"), "the new program runs")
	assert.Contains(h.t, h.run("cat /etc/plimsoll/agent.yaml"), "tick: 2s", "what was configured is kept")
	install("1.0.0") // back
	install("1.1.0") // and on again
	assert.Equal(h.t, "enabled active", h.property("UnitFileState")+" "+h.property("ActiveState"))
	assert.Contains(h.t, h.run("cat /etc/plimsoll/agent.yaml"), "tick: 2s", "what was configured is kept")
	h.run("HOME=/tmp setpriv --reuid nobody --regid nogroup --groups plimsoll plimsoll top --once --api.socket /run/plimsoll/plimsoll.sock") // who belongs to the group
}

// isAsIf nothing of ours had ever been there.
func (h host) isAsIf(before string) {
	h.t.Helper()
	assert.Empty(h.t, cmp.Diff(strings.Split(before, "\n"), strings.Split(h.files(), "\n")))
	assert.Empty(h.t, h.run("getent passwd plimsoll; getent group plimsoll; systemctl list-units --all --no-legend 'plimsoll*'"))
}

// files that a system has, but for those of dpkg, the journal and what is made
// anew at each boot.
func (h host) files() string {
	h.t.Helper()
	return h.run(`find / -xdev \( -path /share -o -path /var/lib/dpkg -o -path /var/log -o -path /tmp -o -path /run -o -path '/var/lib/systemd/*' \) -prune -o -print | sort`)
}
