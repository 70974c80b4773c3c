package e2e_test

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/chart"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

// tagged is a repository of its own with the source as it is here, in one commit
// that is ready to be released as its version.
type tagged struct {
	t   *testing.T
	dir string
	env []string
}

const releasedTag, releasedNumber = "v9.8.7-rc.1", "9.8.7-rc.1"

func newTagged(t *testing.T) tagged {
	t.Helper()
	c := tagged{t: t, dir: t.TempDir()}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MAKE") && !strings.HasPrefix(v, "GIT_") { // of the make that runs this test
			c.env = append(c.env, v)
		}
	}
	c.env = append(c.env, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=2026-12-01T12:00:00Z",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=2026-12-01T12:00:00Z")
	here, err := filepath.Abs("..")
	require.NoError(t, err)
	c.sh(`git -C "$1" ls-files -z --cached --others --exclude-standard | tar -C "$1" --null --ignore-failed-read -T - -c | tar -x`, here)
	appVersion := regexp.MustCompile(`(?m)^appVersion: v(\S+)$`).FindStringSubmatch(c.read("deploy/Chart.yaml"))
	require.NotNil(t, appVersion)
	c.edit("deploy/Chart.yaml", "ersion: "+appVersion[1], "ersion: "+releasedNumber)
	c.edit("deploy/Chart.yaml", "ersion: v"+appVersion[1], "ersion: "+releasedTag)
	c.edit("deploy/plimsoll.yaml", "v"+appVersion[1], releasedTag)
	c.edit("deploy/release-hidden.yaml", "v"+appVersion[1], releasedTag)
	c.edit("CHANGELOG.md", "\n## Unreleased\n", "\n## Unreleased\n\n## "+releasedNumber+" - 2026-12-01\n")
	c.git("init", "--quiet")
	c.commit()
	c.git("tag", releasedTag)
	return c
}

func (c tagged) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(c.t.Context(), name, args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	return cmd
}

func (c tagged) must(name string, args ...string) string {
	c.t.Helper()
	out, err := c.command(name, args...).CombinedOutput()
	require.NoError(c.t, err, "%s %v: %s", name, args, out)
	return strings.TrimSpace(string(out))
}

func (c tagged) git(args ...string) {
	c.t.Helper()
	c.must("git", append([]string{"-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false", "-c", "core.autocrlf=false"}, args...)...)
}

func (c tagged) sh(script string, args ...string) string {
	c.t.Helper()
	return c.must("sh", append([]string{"-ec", script, "sh"}, args...)...)
}

func (c tagged) commit() {
	c.t.Helper()
	c.git("add", "--all")
	c.git("commit", "--quiet", "--message", "release")
}

func (c tagged) read(name string) string {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, name))
	require.NoError(c.t, err)
	return string(text)
}

func (c tagged) edit(name, was, is string) {
	c.t.Helper()
	text := c.read(name)
	require.Contains(c.t, text, was, name)
	require.NoError(c.t, os.WriteFile(filepath.Join(c.dir, name), []byte(strings.ReplaceAll(text, was, is)), 0o644))
}

func TestMakeReleaseRefuses(t *testing.T) {
	t.Parallel()
	c := newTagged(t)
	begin := c.must("git", "rev-parse", "HEAD")
	c.git("config", "status.showUntrackedFiles", "no")
	write(t, filepath.Join(c.dir, ".git/info/exclude"), "hidden*\n")
	for _, refused := range []struct {
		name, says string
		do         func(c tagged)
	}{
		{"a commit without a tag", "release: no tag on HEAD; deploy/Chart.yaml has " + releasedTag + ": git tag -s " + releasedTag, func(c tagged) { c.retag("") }},
		{"for none of what make and editors leave behind", "release: no tag on HEAD", func(c tagged) {
			c.retag("")
			for _, left := range []string{"bin/plimsoll", "e2e/last-green.txt", "e2e.test", ".main.go.swp"} {
				write(c.t, filepath.Join(c.dir, left), "")
			}
		}},
		{"a tag that is no version", "release: the tag on HEAD is no version: 9.8.7: want one such as v1.2.3, or v1.2.3-rc.1", func(c tagged) { c.retag("9.8.7") }},
		{"another version than the chart's", `release: HEAD is tagged v9.9.0, and deploy/Chart.yaml has version "` + releasedNumber + `"`, func(c tagged) { c.retag("v9.9.0") }},
		{"a change that is not committed", "release: not committed, so no commit has what would be built: commit or remove\nM README.md", func(c tagged) { c.edit("README.md", "# Plimsoll", "# Plimsol") }},
		{"a file that is not committed", "commit or remove\n?? deploy/mine.yaml", func(c tagged) { write(c.t, filepath.Join(c.dir, "deploy/mine.yaml"), "a: b\n") }},
		{"a file that this user's git ignores", "commit or remove\n?? daemon/web/hidden.html", func(c tagged) { write(c.t, filepath.Join(c.dir, "daemon/web/hidden.html"), "") }},
		{"a file that hides itself", "commit or remove\n?? plugins/.gitignore\n?? plugins/mine.go", func(c tagged) {
			write(c.t, filepath.Join(c.dir, "plugins/.gitignore"), "*\n")
			write(c.t, filepath.Join(c.dir, "plugins/mine.go"), "package plugins\n")
		}},
		{"a changelog without the version", `release: CHANGELOG.md: no heading "## ` + releasedNumber + ` - YYYY-MM-DD"`, func(c tagged) {
			c.edit("CHANGELOG.md", "## "+releasedNumber+" - ", "## 9.8.6 - ")
			c.commit()
			c.retag(releasedTag)
		}},
		{"a manifest of another image", "release: deploy/plimsoll.yaml: images are ghcr.io/plimsoll-dev/plimsoll:v9.8.6, ", func(c tagged) {
			c.edit("deploy/plimsoll.yaml", "plimsoll:"+releasedTag, "plimsoll:v9.8.6")
			c.commit()
			c.retag(releasedTag)
		}},
		{"to overwrite one", "bin/release is there already, and is not overwritten: remove it, or make release RELEASE=DIR", func(c tagged) {
			write(c.t, filepath.Join(c.dir, "bin/release/mine"), "")
		}},
	} {
		t.Run(refused.name, func(t *testing.T) {
			c := tagged{t, c.dir, c.env}
			c.git("reset", "--quiet", "--hard", begin)
			c.git("clean", "--quiet", "--force", "-d", "-x")
			c.retag(releasedTag)
			refused.do(c)
			before := c.sh("find . -path ./.git -prune -o -print | sort")
			out, err := c.command("make", "release").CombinedOutput()
			require.Error(t, err)
			assert.Contains(t, string(out), refused.says)
			assert.Equal(t, before, c.sh("find . -path ./.git -prune -o -print | sort"), "nothing was built")
		})
	}
}

// retag leaves HEAD with that tag alone.
func (c tagged) retag(tag string) {
	c.t.Helper()
	c.sh("git tag | xargs -r git tag --delete")
	if tag != "" {
		c.git("tag", tag)
	}
}

func TestMakeRelease(t *testing.T) {
	t.Parallel()
	live.Long(t, "it compiles for another processor, and builds krew")
	c := newTagged(t)
	c.must("make", "release")
	for _, part := range []struct {
		name  string
		check func(released)
	}{
		{"it has every file, and their sums", released.complete},
		{"packages", released.packages},
		{"chart and manifest", released.manifests},
		{"the plugin of kubectl", released.plugin},
		{"krew installs it", released.krew},
		{"image and notes", released.image},
	} {
		t.Run(part.name, func(t *testing.T) { part.check(released{t, filepath.Join(c.dir, "bin/release")}) })
	}
	t.Run("another clone makes the same bytes", func(t *testing.T) {
		other := newTagged(t)
		other.env = append(other.env, "GOFLAGS=-tags=plimsollkill", "SOURCE_DATE_EPOCH=1", "PACKAGE_VERSION=1", "TZ=Asia/Tokyo")
		other.sh("umask 077; make release RELEASE=here VERSION=v0.0.1")
		assert.Equal(t, tagged{t, c.dir, nil}.read("bin/release/SHA256SUMS"), other.read("here/SHA256SUMS"))
	})
}

// released is a release in a directory.
type released struct {
	t   *testing.T
	dir string
}

func (r released) must(name string, args ...string) string {
	r.t.Helper()
	return tagged{r.t, r.dir, os.Environ()}.must(name, args...)
}

func (r released) read(name string) string {
	r.t.Helper()
	return tagged{r.t, r.dir, nil}.read(name)
}

// unpack an archive or a package.
func (r released) unpack(name string) string {
	r.t.Helper()
	to := r.t.TempDir()
	if strings.HasSuffix(name, ".deb") {
		r.must("dpkg-deb", "-x", name, to)
	} else {
		r.must("tar", "-x", "-f", name, "-C", to)
	}
	return to
}

func (r released) complete() {
	var names []string
	for line := range strings.Lines(r.read("SHA256SUMS")) {
		names = append(names, strings.Fields(line)[1])
	}
	assert.Equal(r.t, []string{
		"gate-mutating-v1beta1.yaml", "gate-mutating.yaml", "krew.yaml",
		"kubectl-plimsoll_v9.8.7-rc.1_linux_amd64.tar.gz", "kubectl-plimsoll_v9.8.7-rc.1_linux_arm64.tar.gz",
		"plimsoll-9.8.7-rc.1-1.aarch64.rpm", "plimsoll-9.8.7-rc.1-1.x86_64.rpm", "plimsoll-9.8.7-rc.1.tgz", "plimsoll.yaml",
		"plimsoll_9.8.7-rc.1_amd64.deb", "plimsoll_9.8.7-rc.1_arm64.deb", "plimsoll_v9.8.7-rc.1_image.tar",
		"plimsoll_v9.8.7-rc.1_linux_amd64.cdx.json", "plimsoll_v9.8.7-rc.1_linux_arm64.cdx.json", "release-hidden.yaml", "release-notes.md",
	}, names)
	files, err := os.ReadDir(r.dir)
	require.NoError(r.t, err)
	assert.Len(r.t, files, len(names)+1)
	assert.Equal(r.t, len(names), strings.Count(r.must("sha256sum", "--check", "--strict", "SHA256SUMS"), ": OK"))
}

func (r released) packages() {
	for deb, rpm := range map[string]string{"amd64": "x86_64", "arm64": "aarch64"} {
		file := "plimsoll_9.8.7-rc.1_" + deb + ".deb"
		assert.Equal(r.t, "9.8.7~rc.1 "+deb, r.must("dpkg-deb", "--show", "--showformat=${Version} ${Architecture}", file))
		assert.Equal(r.t, "9.8.7~rc.1 "+rpm, r.must("rpm", "-qp", "--qf", "%{VERSION} %{ARCH}", "plimsoll-9.8.7-rc.1-1."+rpm+".rpm"))
		r.isOf(filepath.Join(r.unpack(file), "usr/bin/plimsoll"), deb)
	}
	_, err := exec.CommandContext(r.t.Context(), "dpkg", "--compare-versions", "9.8.7~rc.1", "lt", "9.8.7").Output()
	assert.NoError(r.t, err, "a candidate is upgraded by its release")
}

// isOf the architecture and the version, and of the SBOM, is a program.
func (r released) isOf(program, arch string) {
	r.t.Helper()
	info, err := buildinfo.ReadFile(program)
	require.NoError(r.t, err)
	assert.True(r.t, slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "GOARCH" && s.Value == arch }), program)
	if arch == runtime.GOARCH {
		assert.Equal(r.t, "plimsoll "+releasedTag, r.must(program, "version"))
	}
	var bom struct {
		Metadata struct {
			Component struct {
				Version string
				Hashes  []struct{ Content string }
			}
		}
	}
	require.NoError(r.t, json.Unmarshal([]byte(r.read("plimsoll_v9.8.7-rc.1_linux_"+arch+".cdx.json")), &bom))
	assert.Equal(r.t, releasedTag, bom.Metadata.Component.Version)
	assert.Equal(r.t, strings.Fields(r.must("sha256sum", program))[0], bom.Metadata.Component.Hashes[0].Content, "image, packages and archives have one program")
}

func (r released) manifests() {
	const image = "ghcr.io/plimsoll-dev/plimsoll:" + releasedTag
	file := filepath.Join(r.dir, "plimsoll-9.8.7-rc.1.tgz")
	h := chart.NewHelm(r.t, "")
	h.Run("lint", file, "--strict")
	assert.Regexp(r.t, `(?m)^appVersion: `+releasedTag+`$`, h.Run("show", "chart", file))
	images := regexp.MustCompile(`(?m)^ +image: "?([^"\s]+)"?$`)
	for kind, text := range map[string]string{"chart": h.Run("template", "plimsoll", file), "manifest": r.read("plimsoll.yaml")} {
		found := images.FindAllStringSubmatch(text, -1)
		require.GreaterOrEqual(r.t, len(found), 2, kind)
		for _, m := range found {
			assert.Equal(r.t, image, m[1], kind)
		}
	}
	for _, more := range []string{"gate-mutating.yaml", "gate-mutating-v1beta1.yaml", "release-hidden.yaml"} {
		assert.NotEmpty(r.t, chart.Objects(r.t, r.read(more)))
	}
}

func (r released) plugin() {
	for _, arch := range []string{"amd64", "arm64"} {
		dir := r.unpack("kubectl-plimsoll_" + releasedTag + "_linux_" + arch + ".tar.gz")
		r.isOf(filepath.Join(dir, "kubectl-plimsoll"), arch)
		for _, text := range []string{"LICENSE", "NOTICE"} {
			want, err := os.ReadFile(filepath.Join("..", text))
			require.NoError(r.t, err)
			have, err := os.ReadFile(filepath.Join(dir, text))
			require.NoError(r.t, err)
			assert.Equal(r.t, string(want), string(have))
		}
	}
}

// krew with nothing of this user's, from the archive of each architecture.
func (r released) krew() {
	validator, err := cluster.Program(r.t.Context(), cluster.KrewValidator)
	require.NoError(r.t, err)
	manifest := write(r.t, filepath.Join(r.t.TempDir(), "plimsoll.yaml"), r.read("krew.yaml"))
	assert.Contains(r.t, r.must(validator, "-skip-install", "-manifest", manifest), "structural validation OK")
	program, err := cluster.Program(r.t.Context(), cluster.Krew)
	require.NoError(r.t, err)
	for _, arch := range []string{"amd64", "arm64"} {
		root := r.t.TempDir()
		install := func(archive string) (string, error) {
			cmd := exec.CommandContext(r.t.Context(), program, "install", "--manifest="+filepath.Join(r.dir, "krew.yaml"), "--archive="+filepath.Join(r.dir, archive))
			cmd.Env = append(os.Environ(), "KREW_ROOT="+root, "KREW_OS=linux", "KREW_ARCH="+arch, "KREW_NO_UPGRADE_CHECK=1")
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		out, err := install("plimsoll-9.8.7-rc.1.tgz")
		require.Error(r.t, err, out)
		assert.Contains(r.t, out, "checksum does not match", "another file than the manifest's")
		out, err = install("kubectl-plimsoll_" + releasedTag + "_linux_" + arch + ".tar.gz")
		require.NoError(r.t, err, out)
		assert.Contains(r.t, out, "plimsoll-viewer")
		r.isOf(filepath.Join(root, "bin/kubectl-plimsoll"), arch)
	}
}

func (r released) image() {
	dir := r.unpack("plimsoll_" + releasedTag + "_image.tar")
	var index struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "index.json"))
	require.NoError(r.t, err)
	require.NoError(r.t, json.Unmarshal(text, &index))
	require.Len(r.t, index.Manifests, 1)
	name := index.Manifests[0].Annotations["io.containerd.image.name"]
	assert.Equal(r.t, "ghcr.io/plimsoll-dev/plimsoll:"+releasedTag, name)
	notes := r.read("release-notes.md")
	assert.Contains(r.t, notes, fmt.Sprintf("`%s@%s`", name, index.Manifests[0].Digest))
	assert.Contains(r.t, notes, "Plimsoll "+releasedTag+", 2026-12-01.")
	assert.NotRegexp(r.t, `\]\((docs|deploy)/`, notes, "links lead to the repository")
}
