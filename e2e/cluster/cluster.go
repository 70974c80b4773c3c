package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// startTime is many times what an idle machine needs (5 s).
const startTime = 3 * time.Minute

// Options of a control plane. The zero value is one of each of the four.
type Options struct {
	// Without names programs to leave away: ControllerManager, Scheduler. Nobody
	// then makes service accounts, replicas, taints of silent nodes and so on.
	Without []string
	// APIServers is how many there are, over one etcd; 0 means 1. The controller
	// manager and the scheduler know the first.
	APIServers int
	// Lines stand between each API server and etcd: [Cluster.Lines].
	Lines bool
	// APIServerNames are further names and addresses that the API servers'
	// certificate is good for.
	APIServerNames []string
	// Audit records the requests of the service accounts of [AuditNamespace] and
	// of the users named in AuditUsers: [Cluster.AuditEvents].
	Audit      bool
	AuditUsers []string
	Graces     Graces
	// Args are further arguments by program; of two the last one counts.
	Args map[string][]string
}

// Graces are the periods after which the controller manager takes a node for
// dead; 0 means Kubernetes' own.
type Graces struct {
	NodeMonitorPeriod time.Duration // how often it looks; 5 s
	NodeMonitor       time.Duration // a node that was silent for so long is Unknown; 50 s
	NodeStartup       time.Duration // the same for one that has never spoken; 1 min
}

// Cluster is a running control plane.
type Cluster struct {
	Etcd              *Process
	APIServers        []*Process
	ControllerManager *Process // nil when left away
	Scheduler         *Process // nil when left away
	// Lines from the API servers to etcd, in their order; empty when not asked for.
	Lines []*Line

	// Admin may do everything, at the first API server, as often as it likes.
	Admin *rest.Config
	// Kubeconfig is a file that says the same as Admin.
	Kubeconfig string
	// Client of Admin.
	Client kubernetes.Interface

	options   Options
	added     []*Process
	dir       string
	claimed   io.Closer // dir is
	host      string
	urls      []string // of the API servers
	authority *authority
	mapper    mapper
}

// Start a control plane and wait until it can be used: objects of every kind can
// be made, and pods in the namespace default. It lives until Close, or until
// this process ends.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c, err := prepare(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	ctx, cancel := deadline.Context(ctx, startTime)
	defer cancel()
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("control plane: %w", err), c.Close())
	}
	return c, nil
}

// prepare everything but the processes.
func prepare(ctx context.Context, o Options) (*Cluster, error) {
	o.APIServers = max(o.APIServers, 1)
	if _, err := Program(ctx, Etcd); err != nil { // long before the start's own deadline counts
		return nil, err
	}
	for _, left := range abandoned(filepath.Join(os.TempDir(), "plimsoll-cluster-*")) {
		if err := os.RemoveAll(left); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "plimsoll-cluster-")
	if err != nil {
		return nil, err
	}
	claimed, err := claim(dir)
	if err != nil {
		return nil, err
	}
	// An address of its own of the loopback network: there nobody takes a port
	// while the process that had it is down.
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	c := &Cluster{options: o, dir: dir, claimed: claimed, host: host}
	if err := c.plan(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) plan(ctx context.Context) error {
	var err error
	if c.authority, err = newAuthority(); err != nil {
		return err
	}
	if err := c.writeCredentials(); err != nil {
		return err
	}
	etcd, err := c.planEtcd(ctx)
	if err != nil {
		return err
	}
	for i := range c.options.APIServers {
		if err := c.planAPIServer(ctx, i, etcd); err != nil {
			return err
		}
	}
	if err := c.planClients(); err != nil {
		return err
	}
	if !slices.Contains(c.options.Without, ControllerManager) {
		if err := c.planControllerManager(ctx); err != nil {
			return err
		}
	}
	if !slices.Contains(c.options.Without, Scheduler) {
		return c.planScheduler(ctx)
	}
	return nil
}

func (c *Cluster) start(ctx context.Context) error {
	// A program that does not find what it needs ends or starts over slowly.
	for _, stage := range [][]*Process{{c.Etcd}, c.APIServers, {c.ControllerManager, c.Scheduler}} {
		stage = slices.DeleteFunc(slices.Clone(stage), leftAway)
		for _, p := range stage {
			if err := p.Start(); err != nil {
				return err
			}
		}
		for _, p := range stage {
			if err := p.WaitReady(ctx); err != nil {
				return err
			}
		}
	}
	return c.defaultServiceAccount(ctx, metav1.NamespaceDefault)
}

// Processes are those there are, in the order in which they need each other.
func (c *Cluster) Processes() []*Process {
	all := append([]*Process{c.Etcd}, c.APIServers...)
	all = append(all, c.ControllerManager, c.Scheduler)
	return slices.DeleteFunc(append(all, c.added...), leftAway)
}

func leftAway(p *Process) bool { return p == nil }

// Close ends everything and throws away what was stored.
func (c *Cluster) Close() error {
	var all error
	for _, p := range slices.Backward(c.Processes()) {
		all = errors.Join(all, p.Kill())
	}
	for _, l := range c.Lines {
		all = errors.Join(all, l.close())
	}
	return errors.Join(all, os.RemoveAll(c.dir), c.claimed.Close())
}

// defaultServiceAccount waits for the account that pods of a namespace have by
// default, or makes it where nobody else does.
func (c *Cluster) defaultServiceAccount(ctx context.Context, namespace string) error {
	accounts := c.Client.CoreV1().ServiceAccounts(namespace)
	if c.ControllerManager == nil {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("service account %s/default: %w", namespace, err)
		}
		return nil
	}
	return until(ctx, "service account "+namespace+"/default", func(ctx context.Context) error {
		_, err := accounts.Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// until asks again until there is no error.
func until(ctx context.Context, what string, ask func(context.Context) error) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := ask(asked)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, ctx.Err(), err)
		}
	}
}

// freePort is one that no process listens on now, below the range from which the
// kernel takes ports for connections: one of those is taken again at any moment.
func (c *Cluster) freePort(ctx context.Context) (port int, err error) {
	for range 100 {
		port = 20000 + rand.IntN(12000)
		var l net.Listener
		if l, err = new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(c.host, strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// healthy asks a server that anybody may ask.
func healthy(url string) func(context.Context) error {
	// Its certificate is one it made itself.
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, resp.Status)
		}
		return nil
	}
}

func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }
