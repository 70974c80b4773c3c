package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/clock"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// patience is how long a test waits for what should come at once.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(bareWatchEnv); kubeconfig != "" {
		fmt.Fprintln(os.Stderr, watchBare(kubeconfig))
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "plimsoll-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary, loadBinary = filepath.Join(dir, "plimsoll"), filepath.Join(dir, "load")
	if err := errors.Join(build(binary, ".."), build(loadBinary, "./load")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // an ordinary user runs it too
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Those with a control plane of their own wait for most of their time.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := cluster.Main(m)
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

func build(path, what string, tags ...string) error {
	c := exec.Command("go", "build", "-buildvcs=false", "-tags", strings.Join(tags, ","), "-o", path, what)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", what, err, out)
	}
	return nil
}

// binary is the program under test, loadBinary what it is tested with.
var binary, loadBinary string

// rogue is the badly behaved plugin, openFiles an example of a good one, and hooked the
// program with the hooks of tests, which its environment arms; each is built for the first
// test that asks, beside binary, and removed with it.
var (
	rogue     = buildOnce("rogue", "./rogue")
	openFiles = buildOnce("openfiles", "../plugins/outer/examples/openfiles")
	hooked    = buildOnce("plimsoll-with-hooks", "..", "plimsollkill", "plimsollstuck")
)

// buildOnce is the path of a program of that name that several tests run.
func buildOnce(name, what string, tags ...string) func(t *testing.T) string {
	once := sync.OnceValues(func() (string, error) {
		path := filepath.Join(filepath.Dir(binary), name)
		return path, build(path, what, tags...)
	})
	return func(t *testing.T) string {
		t.Helper()
		path, err := once()
		require.NoError(t, err)
		return path
	}
}

// agent is a running plimsoll agent.
type agent struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr live.Output
	url, socket    string
	ended          chan struct{}
	settable       bool         // its clock is to be set
	clock          *clock.Clock // nil: it cannot be
}

// prepare an agent without a cluster.
func prepare(t *testing.T, args ...string) *agent {
	t.Helper()
	return prepareAgent(t, append([]string{"--standalone", "--state.dir", filepath.Join(t.TempDir(), "state")}, args...)...)
}

// prepareAgent makes one that listens where nobody else does.
func prepareAgent(t *testing.T, args ...string) *agent {
	t.Helper()
	a := &agent{t: t, socket: filepath.Join(t.TempDir(), "s", "plimsoll.sock"), ended: make(chan struct{})}
	all := append([]string{"agent", "--api.socket", a.socket, "--web.listen-address", "127.0.0.1:0"}, args...)
	a.cmd = exec.Command(binary, all...)
	a.cmd.Stdout, a.cmd.Stderr = &a.stdout, &a.stderr
	return a
}

// start it, wait until it listens, and end it with the test.
func (a *agent) start() *agent {
	a.t.Helper()
	a.launch()
	url := regexp.MustCompile(`url=(https?://\S+)`)
	eventually(a.t, "the agent listens", func() error {
		if m := url.FindStringSubmatch(a.stderr.String()); m != nil {
			a.url = strings.TrimSuffix(m[1], "/")
			return nil
		}
		select {
		case <-a.ended:
			a.t.Fatalf("the agent ended: %s%s", a.stdout.String(), a.stderr.String())
		default:
		}
		return errors.New(a.stderr.String())
	})
	return a
}

func (a *agent) begin() (err error) {
	if a.settable {
		a.clock, err = clock.Start(a.cmd)
		return err
	}
	return a.cmd.Start()
}

// with is the same agent, for a subtest.
func (a *agent) with(t *testing.T) *agent {
	t.Helper()
	return &agent{t: t, cmd: a.cmd, url: a.url, socket: a.socket, ended: a.ended}
}

func startAgent(t *testing.T, args ...string) *agent {
	t.Helper()
	return prepare(t, args...).start()
}

// end it with a signal and return its exit status.
func (a *agent) end(sig os.Signal) int {
	a.t.Helper()
	require.NoError(a.t, a.cmd.Process.Signal(sig))
	select {
	case <-a.ended:
	case <-deadline.After(patience):
		a.t.Fatalf("the agent did not end on %s", sig)
	}
	return a.cmd.ProcessState.ExitCode()
}

// get asks over HTTP; the deadline makes a hang an error.
func (a *agent) get(path string) (status int, body string, err error) {
	return get(http.DefaultClient, a.url+path)
}

func get(c *http.Client, url string) (int, string, error) {
	ctx, cancel := deadline.Context(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	return do(c, req)
}

func do(c *http.Client, req *http.Request) (int, string, error) {
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// mustGet is for answers that must be there.
func (a *agent) mustGet(path string) string {
	a.t.Helper()
	status, body, err := a.get(path)
	require.NoError(a.t, err)
	require.Equal(a.t, http.StatusOK, status, body)
	return body
}

// local asks on the Unix socket.
func (a *agent) local(method, path string) (int, string, error) {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", a.socket)
	}}}
	req, err := http.NewRequest(method, "http://agent"+path, http.NoBody)
	require.NoError(a.t, err)
	return do(c, req)
}

// pressure as the API says it.
type pressure struct {
	Time     time.Time         `json:"time"`
	Levels   map[string]string `json:"levels"`
	Verdicts []plugins.Verdict `json:"verdicts"`
}

func (a *agent) pressure() (p pressure) {
	a.t.Helper()
	require.NoError(a.t, json.Unmarshal([]byte(a.mustGet("/api/v1/pressure")), &p))
	return p
}

// verdict of a plugin about a scope.
func (p pressure) verdict(t *testing.T, plugin, scope string) plugins.Verdict {
	t.Helper()
	i := slices.IndexFunc(p.Verdicts, func(v plugins.Verdict) bool { return v.Plugin == plugin && v.Scope == scope })
	require.GreaterOrEqual(t, i, 0, "no verdict of %s about %s", plugin, scope)
	return p.Verdicts[i]
}

// memory is the verdict of memory-stall.
func (p pressure) memory(t *testing.T) plugins.Verdict {
	t.Helper()
	return p.verdict(t, "memory-stall", "node")
}

func (a *agent) snapshot() (s snapshot.Snapshot) {
	a.t.Helper()
	require.NoError(a.t, json.Unmarshal([]byte(a.mustGet("/api/v1/snapshot")), &s))
	return s
}

// ticked waits until the agent has n samples behind it.
func (a *agent) ticked(n uint64) *agent {
	a.t.Helper()
	eventually(a.t, fmt.Sprintf("%d samples are taken", n), func() error {
		status, body, err := a.get("/api/v1/snapshot")
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("%d %s %w", status, body, err)
		}
		if s := a.snapshot(); s.Sequence < n {
			return fmt.Errorf("%d so far", s.Sequence)
		}
		return nil
	})
	return a
}

// eventually waits for a condition, with a deadline.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	within(t, patience, what, check)
}

func within(t *testing.T, d time.Duration, what string, check func() error) time.Duration {
	t.Helper()
	return deadline.Within(t, d, what, check)
}

// run the program to its end.
func run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return runProgram(t, binary, args...)
}

// runProgram runs it by another name.
func runProgram(t *testing.T, name string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := deadline.Context(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	require.NoError(t, ctx.Err(), "plimsoll %v did not end", args)
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

// write a file of a test.
func write(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "agent.yaml"), "apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\n"+text)
}

// needsRoot skips where the kernel would refuse.
func needsRoot(t *testing.T) {
	t.Helper()
	if syscall.Geteuid() != 0 {
		t.Skip("needs root")
	}
}
