package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// startTime is many times what an idle machine needs (5 s).
const startTime = 3 * time.Minute

// Options of a control plane. The zero value is one of each of the four.
type Options struct {
	// Kubernetes is the minor version of all but etcd: "1.34"; empty: that which
	// PLIMSOLL_K8S asks for, else the newest that is pinned.
	Kubernetes string
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

// versioned is the name of a program of Kubernetes with its version.
func (o Options) versioned(program string) string {
	if slices.Contains([]string{APIServer, ControllerManager, Scheduler}, program) {
		return program + "@" + o.Kubernetes
	}
	return program
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
	// Version that the API server says of itself: "v1.34.4".
	Version string

	place
	users
	options Options
	added   []*Process
	claimed io.Closer // its directory is
	urls    []string  // of the API servers
	audit   auditLogs
	mapper  mapper
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
	for _, program := range []string{Etcd, APIServer} { // long before the start's own deadline counts
		if _, err := Program(ctx, o.versioned(program)); err != nil {
			return nil, err
		}
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
	p := place{dir: dir, host: host, options: o, given: new(atomic.Uint32)}
	c := &Cluster{place: p, options: o, claimed: claimed, audit: auditLogs{p, o.AuditUsers}}
	if err := c.plan(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) plan(ctx context.Context) error {
	signs, err := newAuthority()
	if err != nil {
		return err
	}
	if err := signs.writeFiles(c.dir, append([]string{c.host}, c.options.APIServerNames...)...); err != nil {
		return err
	}
	var etcd string
	if c.Etcd, etcd, err = c.etcd(ctx); err != nil {
		return err
	}
	for i := range c.options.APIServers {
		if err := c.planAPIServer(ctx, i, etcd); err != nil {
			return err
		}
	}
	if err := c.planAdmin(signs); err != nil {
		return err
	}
	if !slices.Contains(c.options.Without, ControllerManager) {
		// One identity for all its loops, which needs more than that user's own role.
		if c.ControllerManager, err = c.planClient(ctx, ControllerManager, []string{"system:masters"}, c.controllerManagerArgs(c.options.Graces)...); err != nil {
			return err
		}
	}
	if !slices.Contains(c.options.Without, Scheduler) {
		c.Scheduler, err = c.planClient(ctx, Scheduler, nil)
	}
	return err
}

func (c *Cluster) planAPIServer(ctx context.Context, i int, etcd string) error {
	port, err := c.freePort(ctx)
	if err != nil {
		return err
	}
	if c.options.Lines {
		var line *Line
		if line, etcd, err = newLine(ctx, c.host, etcd); err != nil {
			return err
		}
		c.Lines = append(c.Lines, line)
	}
	c.urls = append(c.urls, "https://"+c.at(port))
	var audit []string
	if c.options.Audit {
		if audit, err = c.audit.args(i); err != nil {
			return err
		}
	}
	// Made when it is first asked, since Admin is planned later, and only once: it is
	// asked many times a second.
	once := sync.OnceValues(func() (*kubernetes.Clientset, error) { return kubernetes.NewForConfig(c.AdminAt(i)) })
	ready := func(ctx context.Context) error {
		client, err := once()
		if err != nil {
			return err
		}
		return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}
	p, err := c.apiServer(ctx, i, port, etcd, ready, audit...)
	c.APIServers = append(c.APIServers, p)
	return err
}

func (c *Cluster) planAdmin(signs *authority) (err error) {
	c.users = users{place: c.place, url: c.urls[0], authority: signs}
	if c.Admin, err = c.User("admin", "system:masters"); err != nil {
		return err
	}
	if c.Kubeconfig, err = c.WriteKubeconfig("admin", c.Admin); err != nil {
		return err
	}
	if c.Client, err = kubernetes.NewForConfig(c.Admin); err != nil {
		return err
	}
	c.users.client = c.Client
	c.mapper, err = newMapper(c.Admin)
	return err
}

// planClient plans a program that works through the first API server.
func (c *Cluster) planClient(ctx context.Context, program string, groups []string, args ...string) (*Process, error) {
	identity, err := c.User("system:"+program, groups...)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.WriteKubeconfig(program, identity)
	if err != nil {
		return nil, err
	}
	return c.clientOf(ctx, program, kubeconfig, args...)
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
	version, err := c.Client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	c.Version = version.GitVersion
	return c.defaultServiceAccount(ctx, metav1.NamespaceDefault)
}

// Processes are those there are, in the order in which they need each other.
func (c *Cluster) Processes() []*Process {
	all := append([]*Process{c.Etcd}, c.APIServers...)
	all = append(all, c.ControllerManager, c.Scheduler)
	return slices.DeleteFunc(append(all, c.added...), leftAway)
}

func leftAway(p *Process) bool { return p == nil }

// Address is a free address and port of the cluster's own host: no process listens there now.
func (c *Cluster) Address(ctx context.Context) (string, error) {
	port, err := c.freePort(ctx)
	return c.at(port), err
}

// Add a further program, which is started by the caller and ends with the
// cluster. env is beside this process's own environment.
func (c *Cluster) Add(ctx context.Context, program string, ready func(context.Context) error, env []string, args ...string) (*Process, error) {
	p, err := c.process(ctx, program, fmt.Sprintf("%s-%d", program, len(c.added)), ready, args...)
	if err != nil {
		return nil, err
	}
	p.env = env
	c.added = append(c.added, p)
	return p, nil
}

// Apply makes or changes every object of the manifests, in their order, as
// Admin: YAML or JSON, any number of documents, any kind, Lists too.
func (c *Cluster) Apply(ctx context.Context, manifests ...[]byte) error {
	return c.mapper.apply(ctx, manifests...)
}

// AuditEvents are the requests that were recorded so far at all API servers, in
// the order of their time; a watch that goes on is one too. A request appears
// shortly after its answer, so a test that expects one asks again.
func (c *Cluster) AuditEvents() ([]AuditEvent, error) { return c.audit.events(c.APIServers) }

// AdminAt is Admin at API server i, counted from 0.
func (c *Cluster) AdminAt(i int) *rest.Config {
	config := rest.CopyConfig(c.Admin)
	config.Host = c.urls[i]
	return config
}

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

// Serves tells whether the API servers serve every kind of the manifests.
func (c *Cluster) Serves(manifests ...[]byte) (bool, error) {
	for _, manifest := range manifests {
		objects, err := decode(manifest)
		if err != nil {
			return false, fmt.Errorf("serves: %w", err)
		}
		for _, o := range objects {
			kind := o.GroupVersionKind()
			_, err := c.mapper.kinds.RESTMapping(kind.GroupKind(), kind.Version)
			switch {
			case meta.IsNoMatchError(err):
				return false, nil
			case err != nil:
				return false, fmt.Errorf("serves %s: %w", kind, err)
			}
		}
	}
	return true, nil
}
