package matrix

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

var update = flag.Bool("update", false, "write docs/compatibility.md anew from records.json")

const (
	records = "records.json"
	page    = "../../docs/compatibility.md"
)

// asks are the environment variables that ask for versions of a program; those of
// the tests that run here hold one version each.
var asks = map[string]string{cluster.APIServer: "PLIMSOLL_K8S", cluster.Velero: "PLIMSOLL_VELERO"}

// pinned are the whole versions of both programs, the newest first.
func pinned(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for program := range asks {
		minors, err := cluster.Versions(program)
		require.NoError(t, err)
		for _, minor := range minors {
			version, err := cluster.Pinned(program + "@" + minor)
			require.NoError(t, err)
			all[program] = append(all[program], version)
		}
	}
	return all
}

// TestCompatibilityPage: the page is what the records say.
func TestCompatibilityPage(t *testing.T) {
	all, err := ReadRecords(records)
	require.NoError(t, err)
	want := Page(all, pinned(t))
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
	}
	is, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, want, string(is), "go test ./e2e/matrix -run TestCompatibilityPage -update")
}

// TestMatrix runs the tests of each function against each version that is asked
// for; those of one program alone where only its versions are, else all.
func TestMatrix(t *testing.T) {
	live.Long(t, "it builds and runs every version that is pinned: make matrix")
	wanted := map[string][]string{}
	asked := false
	for program, variable := range asks {
		wanted[program] = strings.Fields(os.Getenv(variable))
		asked = asked || len(wanted[program]) > 0
		t.Setenv(variable, "") // for pinned, and for what builds the tests
	}
	for program := range asks {
		if all, err := cluster.Versions(program); !asked {
			require.NoError(t, err)
			wanted[program] = all
		}
	}
	r := &runner{commit: commit(t), binaries: map[string]string{}, dir: t.TempDir()}
	for _, program := range []string{cluster.APIServer, cluster.Velero} {
		for _, version := range wanted[program] {
			t.Run(program+"@"+version, func(t *testing.T) { r.run(t, program, version) })
		}
	}
}

// runner runs the tests of functions and records what comes of them.
type runner struct {
	commit   string
	dir      string
	binaries map[string]string // of tests, by their directory
}

func (r *runner) run(t *testing.T, program, minor string) {
	whole, err := cluster.Pinned(program + "@" + minor)
	require.NoError(t, err)
	_, err = cluster.Program(t.Context(), program+"@"+minor) // long before the tests' own deadlines count
	require.NoError(t, err)
	of := map[string][]Function{}
	for _, f := range Functions() {
		if f.Of == program {
			of[f.Dir] = append(of[f.Dir], f)
		}
	}
	for dir, functions := range of {
		outcomes := r.tests(t, dir, asks[program]+"="+minor, functions)
		for _, f := range functions {
			t.Run(f.Name, func(t *testing.T) {
				state, why := Judge(&f, whole, outcomes)
				if state == Fails { // once more, alone: this machine may be busy
					t.Logf("it failed, and runs again: %s", why)
					state, why = Judge(&f, whole, r.tests(t, dir, asks[program]+"="+minor, []Function{f}))
				}
				t.Log(strings.TrimSpace(fmt.Sprint(state, " ", why)))
				r.record(t, Record{f.Name, whole, state, why, time.Now().UTC().Format(time.DateOnly), r.commit})
				assert.NotEqual(t, Fails, state, why)
			})
		}
	}
}

// tests of some functions, in their short form, and what came of them.
func (r *runner) tests(t *testing.T, dir, version string, functions []Function) []Outcome {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	if r.binaries[dir] == "" {
		binary := filepath.Join(r.dir, strings.ReplaceAll(dir, "/", "-")+".test")
		build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, "./"+dir)
		build.Dir = root
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
		r.binaries[dir] = binary
	}
	run := exec.CommandContext(t.Context(), "go", "tool", "test2json", "-t", r.binaries[dir],
		"-test.v=test2json", "-test.paniconexit0", "-test.timeout=40m", "-test.run="+pattern(functions))
	run.Dir = filepath.Join(root, dir)
	run.Env = append(os.Environ(), version, "PLIMSOLL_LONG=")
	run.Stderr = os.Stderr
	begun := time.Now()
	out, err := run.Output() // a test that fails is among the outcomes
	outcomes, wrong := ReadOutcomes(bytes.NewReader(out))
	require.NoError(t, wrong)
	require.NotEmpty(t, outcomes, "%s: %v", dir, err)
	t.Logf("%s with %s: %d tests in %s", dir, version, len(outcomes), time.Since(begun).Round(time.Second))
	for _, o := range outcomes {
		if o.Result != "pass" && !strings.Contains(o.Test, "/") {
			t.Logf("%s: %s\n%s", o.Test, cmp.Or(o.Result, "it did not end"), o.Said)
		}
	}
	return outcomes
}

// record what came, and the page with it.
func (r *runner) record(t *testing.T, of Record) {
	t.Helper()
	all, err := ReadRecords(records)
	require.NoError(t, err)
	all = all.With(of)
	require.NoError(t, all.Write(records))
	require.NoError(t, os.WriteFile(page, []byte(Page(all, pinned(t))), 0o644))
}

// commit that runs, with "+" where the tree has changes but for what is written here.
func commit(t *testing.T) string {
	t.Helper()
	git := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	id := git("rev-parse", "--short", "HEAD")
	if git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!e2e/matrix/records.json", ":!docs/compatibility.md", ":!e2e/last-green.txt") != "" {
		id += "+"
	}
	return id
}

func TestFunctionsTestsExist(t *testing.T) {
	names := map[string]bool{}
	for _, f := range Functions() {
		assert.False(t, names[f.Name], "two are called %s", f.Name)
		names[f.Name] = true
		files, err := filepath.Glob(filepath.Join("../..", f.Dir, "*_test.go"))
		require.NoError(t, err)
		var all string
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			all += string(text)
		}
		for _, test := range f.Tests {
			name, sub, _ := strings.Cut(test, "/")
			assert.Contains(t, all, "func "+name+"(t *testing.T)", f.Name)
			assert.Contains(t, all, strings.ReplaceAll(sub, "_", " "), f.Name)
		}
	}
}

// stream is what test2json writes of some tests.
const stream = `{"Action":"start"}
no event
{"Action":"run","Test":"TestA"}
{"Action":"attr","Test":"TestA","Key":"kube-apiserver","Value":"v1.34.4"}
{"Action":"output","Test":"TestA","Output":"    a_test.go:7: it is there\n"}
{"Action":"pass","Test":"TestA","Elapsed":1}
{"Action":"run","Test":"TestB"}
{"Action":"attr","Test":"TestB","Key":"kube-apiserver","Value":"v1.34.4"}
{"Action":"attr","Test":"TestB","Key":"smaller","Value":"two of four kinds"}
{"Action":"run","Test":"TestB/x"}
{"Action":"pass","Test":"TestB/x"}
{"Action":"pass","Test":"TestB"}
{"Action":"run","Test":"TestC"}
{"Action":"attr","Test":"TestC","Key":"kube-apiserver","Value":"v1.34.4"}
{"Action":"output","Test":"TestC","Output":"    c_test.go:70: this API server serves no such policy\n"}
{"Action":"skip","Test":"TestC"}
{"Action":"run","Test":"TestD"}
{"Action":"run","Test":"TestD/x"}
{"Action":"fail","Test":"TestD/x"}
{"Action":"fail","Test":"TestD"}
{"Action":"run","Test":"TestOther"}
{"Action":"attr","Test":"TestOther","Key":"kube-apiserver","Value":"v1.37.1"}
{"Action":"pass","Test":"TestOther"}
{"Action":"run","Test":"TestAlone"}
{"Action":"pass","Test":"TestAlone"}
{"Action":"run","Test":"TestEndless"}
{"Action":"attr","Test":"TestEndless","Key":"kube-apiserver","Value":"v1.34.4"}
`

func TestJudge(t *testing.T) {
	outcomes, err := ReadOutcomes(strings.NewReader(stream))
	require.NoError(t, err)
	for _, c := range []struct {
		tests []string
		state State
		why   string
	}{
		{[]string{"TestA"}, Works, ""},
		{[]string{"TestB"}, Less, "two of four kinds"},
		{[]string{"TestB/x"}, Works, ""},
		{[]string{"TestC"}, Off, "this API server serves no such policy"},
		{[]string{"TestA", "TestC"}, Less, "this API server serves no such policy"},
		{[]string{"TestA", "TestD"}, Fails, "TestD; TestD/x"},
		{[]string{"TestEndless"}, Fails, "TestEndless"},
		{[]string{"TestA", "TestAbsent"}, Fails, "TestAbsent did not run"},
		{[]string{"TestA", "TestAbsent/x"}, Fails, "TestAbsent/x did not run"},
		{[]string{"TestOther"}, Fails, "no test ran against v1.34.4"},
		{[]string{"TestAlone"}, Fails, "no test ran against v1.34.4"},
	} {
		t.Run(strings.Join(c.tests, "+"), func(t *testing.T) {
			state, why := Judge(&Function{Of: cluster.APIServer, Tests: c.tests}, "v1.34.4", outcomes)
			assert.Equal(t, c.state, state)
			assert.Equal(t, c.why, why)
		})
	}
}

func TestRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.json")
	none, err := ReadRecords(path)
	require.NoError(t, err)
	assert.Empty(t, none)
	name := Functions()[0].Name
	old := Record{name, "v1.34.4", Fails, "TestX", "2026-01-01", "aaa"}
	again := Record{name, "v1.34.4", Works, "", "2026-01-02", "bbb"}
	other := Record{name, "v1.33.13", Off, "it is not served", "2026-01-02", "bbb"}
	require.NoError(t, Records{}.With(old).With(other).With(again).Write(path))
	all, err := ReadRecords(path)
	require.NoError(t, err)
	assert.Equal(t, Records{other, again}, all)
	text := Page(all, map[string][]string{cluster.APIServer: {"v1.35.4", "v1.34.4", "v1.33.13"}})
	line := slices.IndexFunc(strings.Split(text, "\n"), func(l string) bool { return strings.HasPrefix(l, "| "+name) })
	assert.Equal(t, "| "+name+" | not run | works | **off** (1) |", strings.Split(text, "\n")[line])
	assert.Contains(t, text, "\n1. it is not served\n")
	assert.Contains(t, text, "\nv1.34.4 ran on 2026-01-02 at bbb.\n")
	assert.NotContains(t, text, "v1.35.4 ran")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = ReadRecords(path)
	require.ErrorContains(t, err, path)
}
