package cluster

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// cleanupTime is how long one step of tidying up may take.
const cleanupTime = 30 * time.Second

// shared is the control plane of this process's tests.
//
//nolint:gochecknoglobals // the tests of a package share nothing else that could hold it
var shared struct {
	mu      sync.Mutex // guards all below
	cluster *Cluster
	options Options
	err     error
}

// Main runs a package's tests, ends the control plane they shared, and returns
// the status to exit with: func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }.
func Main(m *testing.M) int {
	status := m.Run()
	if err := CloseShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(status, 1)
	}
	return status
}

// CloseShared ends what [Shared] has started, for a TestMain with more to do
// than [Main] does.
func CloseShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil {
		return nil
	}
	c := shared.cluster
	shared.cluster = nil
	return c.Close()
}

// Shared is the one control plane of all tests of a package, started for the
// first that asks. All must ask for the same, leave it whole, and tell their
// objects apart by [Cluster.Namespace].
func Shared(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	notShort(tb)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil && shared.err == nil {
		shared.options = o
		// Its life is longer than that of the test that asks first.
		shared.cluster, shared.err = Start(context.WithoutCancel(tb.Context()), o)
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	if !reflect.DeepEqual(shared.options, o) {
		tb.Fatalf("the shared control plane has other options: %+v", shared.options)
	}
	shared.cluster.says(tb)
	return shared.cluster
}

// New is a control plane for this test alone. A start takes 2.5 s of a processor, more beside
// others, and while one is idle it takes a fortieth: what can be a subtest on a shared one is.
func New(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	notShort(tb)
	c, err := Start(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	c.says(tb)
	return c
}

// says which version the test runs against, as an attribute, and when it fails
// what the programs said last.
func (c *Cluster) says(tb testing.TB) {
	tb.Helper()
	tellOnFailure(tb, c)
	tb.Attr(APIServer, c.Version)
}

// notShort leaves a control plane to the tests that may start processes.
func notShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("starts a control plane: make test")
	}
}

// tellOnFailure shows what each program said last when the test fails.
func tellOnFailure(tb testing.TB, c *Cluster) {
	tb.Cleanup(func() {
		if !tb.Failed() {
			return
		}
		for _, p := range c.Processes() {
			tb.Logf("last words of %s:\n%s", p.Name(), p.Tail())
		}
	})
}

// Namespace makes one for this test and deletes it afterwards.
func (c *Cluster) Namespace(tb testing.TB) string {
	tb.Helper()
	name := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(tb.Name()), "-"), "-")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name[:min(len(name), 40)] + "-"}}
	made, err := c.Client.CoreV1().Namespaces().Create(tb.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		tb.Fatalf("namespace: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := deadline.Context(context.WithoutCancel(tb.Context()), cleanupTime)
		defer cancel()
		if err := c.Client.CoreV1().Namespaces().Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
			tb.Errorf("namespace %s: %v", made.Name, err)
		}
	})
	ctx, cancel := deadline.Context(tb.Context(), cleanupTime)
	defer cancel()
	if err := c.defaultServiceAccount(ctx, made.Name); err != nil {
		tb.Fatal(err)
	}
	return made.Name
}

// ApplyServed applies the first of these manifests whose kinds the API servers serve,
// as an older Kubernetes does not always, and tells whether there is one.
func (c *Cluster) ApplyServed(tb testing.TB, manifests ...[]byte) bool {
	tb.Helper()
	for _, manifest := range manifests {
		served, err := c.Serves(manifest)
		if err == nil && served {
			err = c.Apply(tb.Context(), manifest)
		}
		if err != nil {
			tb.Fatal(err)
		}
		if served {
			return true
		}
	}
	return false
}

// Node adds a node with a [StandIn] for this test; both are gone afterwards. It
// skips where cgroups cannot be made.
func (c *Cluster) Node(tb testing.TB, name string) *StandIn {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("needs root: pods get real cgroups")
	}
	if _, err := c.AddNode(tb.Context(), name, nil); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := deadline.Context(context.WithoutCancel(tb.Context()), cleanupTime)
		defer cancel()
		if err := c.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			tb.Errorf("delete node %s: %v", name, err)
		}
	})
	s, err := c.StandIn(tb.Context(), name, fmt.Sprintf("/plimsoll-e2e-%d-%s", os.Getpid(), name))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("last words of the StandIn for node %s:\n%s", name, s.Tail())
		}
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}
