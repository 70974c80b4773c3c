// Package remote asks a cluster, from anywhere: what its agents report in their
// heartbeats, and one agent or the leading controller through the API server.
//
// # Usage
//
//	c, err := remote.Open(remote.Access{Context: "prod"})
//	all, err := c.Overview(ctx)
//	agent, err := c.Agent(ctx, "worker-7", 15*time.Second)
//	state, err := agent.State(ctx)
//	controller, err := c.LeadingController(ctx, 15*time.Second)
//	backups, err := controller.Backups(ctx)
package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/files"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// Namespace of agents and controller, as the manifests have it.
const Namespace = "plimsoll-system"

// Access is how a user names a cluster: as for kubectl. Kubeconfig is empty for
// $KUBECONFIG, which may be a list, ~/.kube/config, or the pod's service account;
// Context is empty for the current one.
type Access struct{ Kubeconfig, Context string }

// ErrNoCluster says that no kubeconfig names a cluster.
var ErrNoCluster = errors.New("no cluster to ask: there is no ~/.kube/config; set $KUBECONFIG or --kubeconfig")

func (a Access) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath, rules.WarnIfAllMissing = a.Kubeconfig, false
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: a.Context})
}

// Rest is the client configuration. It has no rate limit: a command sends few
// requests.
func (a Access) Rest() (*rest.Config, error) {
	config := a.config()
	if err := a.readable(); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	how, err := config.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err) && a.Context == "":
		return nil, ErrNoCluster
	case err != nil:
		return nil, a.explained(config, err)
	}
	how.UserAgent = "plimsoll/" + process.Version()
	how.ContentType = runtime.ContentTypeProtobuf
	how.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	how.QPS = -1
	how.WarningHandler = rest.NoWarnings{}
	return how, nil
}

// explained names the contexts that there are where another one was asked for.
func (a Access) explained(config clientcmd.ClientConfig, err error) error {
	raw, unread := config.RawConfig()
	if unread != nil || a.Context == "" || raw.Contexts[a.Context] != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	var names []string
	for name := range raw.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) == 0 {
		return fmt.Errorf("--context %q: %w", a.Context, ErrNoCluster)
	}
	return fmt.Errorf("--context %q: no such context; there is: %s", a.Context, strings.Join(names, ", "))
}

// readable refuses files that clientcmd, which has no bound, would read for ever.
func (a Access) readable() error {
	list := clientcmd.NewDefaultClientConfigLoadingRules().GetLoadingPrecedence()
	if a.Kubeconfig != "" {
		list = []string{a.Kubeconfig}
	}
	for _, path := range list {
		err := files.Check(path, process.MaxKubeconfig)
		if err != nil && (a.Kubeconfig != "" || !errors.Is(err, fs.ErrNotExist)) { // of a list some may be missing
			return err
		}
	}
	return nil
}

// Namespace of the context, "default" where it names none.
func (a Access) Namespace() string {
	namespace, _, err := a.config().Namespace()
	if err != nil || namespace == "" {
		return "default"
	}
	return namespace
}

// Cluster is a cluster that is asked.
type Cluster struct {
	Core   corev1client.CoreV1Interface
	leases coordinationv1client.LeasesGetter
	how    *rest.Config
	clock  *agents.Clock
}

// Open sends no request.
func Open(a Access) (*Cluster, error) {
	how, err := a.Rest()
	if err != nil {
		return nil, err
	}
	return New(how)
}

// New is the cluster of a client configuration. It sends no request.
func New(how *rest.Config) (c *Cluster, err error) {
	c = &Cluster{how: how, clock: &agents.Clock{}}
	how = rest.CopyConfig(how)
	how.Wrap(c.clock.Wrap) // ages are by the API server's clock
	if c.Core, err = corev1client.NewForConfig(how); err == nil {
		c.leases, err = coordinationv1client.NewForConfig(how)
	}
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	return c, nil
}

// viewer is the right to read heartbeats and to ask Plimsoll's own pods.
func viewer() string { return bind("plimsoll-viewer", lease.Namespace, Namespace) }

// View is the right to read pods and Events of a namespace.
func View(namespace string) string { return bind("view", namespace) }

func bind(role string, namespaces ...string) string {
	in := "the namespace "
	if len(namespaces) > 1 {
		in = "the namespaces "
	}
	return "bind the ClusterRole " + role + " in " + in + strings.Join(namespaces, " and ") + " to your account"
}

// Advised adds to an error of the API server what to do about it; right is that which the
// request needs.
func Advised(err error, right string) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: %s", err, right)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: the API server does not accept the credentials of this context", err)
	}
	return err
}

// told is an error of the API server, what it is about, and what to do.
func told(what string, err error, right string) error {
	return fmt.Errorf("%s: %w", what, Advised(err, right))
}
