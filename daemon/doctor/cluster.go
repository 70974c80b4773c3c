package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/daemon/guard"
	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/evict/kube"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/throttle/resize"
)

// serverTimeout bounds all requests to the API server together.
const serverTimeout = 15 * time.Second

// Minor versions 1.x of Kubernetes: the oldest that has what is needed, and the oldest that
// docs/compatibility.md has a run of.
const oldestKubernetes, oldestTried = 30, 31

// cluster examines the API server, if the configuration has one. agentRuns: an agent
// answers on the socket.
func (p Examination) cluster(ctx context.Context, agentRuns bool) []Row {
	switch {
	case p.ClusterErr != nil:
		return []Row{{Fail, "API server", p.ClusterErr.Error()}}
	case p.Cluster == nil:
		return []Row{{Pass, "API server", "no kubeconfig: the agent can only run with --standalone"}}
	}
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	clock := &agents.Clock{}
	how := p.Cluster
	p.Cluster = rest.CopyConfig(p.Cluster)
	p.Cluster.Wrap(clock.Wrap) // rows count ages by the API server's clock: this machine's may be wrong
	rows := append(p.credentials(), p.dryRun())
	client, err := kubernetes.NewForConfig(p.Cluster)
	if err != nil {
		return append(rows, Row{Fail, "API server", p.Cluster.Host + ": " + oneLine(err)})
	}
	server := apiServer(ctx, client, p.Cluster.Host)
	rows = append(rows, server)
	if server.Result != Fail {
		velero := serves(ctx, client, names.VeleroGroup)
		rows = append(rows, p.loads(velero), p.rights(ctx, client))
		if p.RequestsEvictions {
			rows = append(rows, evictionRequests(ctx, client))
		}
		if p.Resizes {
			rows = append(rows, resizes(ctx, client))
		}
		rows = append(rows, leases(ctx, client, p, agentRuns)...)
		rows = append(rows, queues(ctx, client, clock, how)...)
		rows = append(rows, veleroProtected(ctx, client, p.Protected)...)
		rows = append(rows, installedVelero(ctx, p.Cluster)...)
		rows = append(rows, neighbours(ctx, client, velero, clock.Now())...)
	}
	return rows
}

// credentials examines the files of a kubeconfig: who reads a token of an agent may write
// what the agent may.
func (p Examination) credentials() []Row {
	const check = "kubeconfig"
	if p.Kubeconfig == "" {
		return nil
	}
	of := p.Cluster
	f := guard.WebConfigFacts{Files: []string{p.Kubeconfig}}
	if of.BearerToken != "" && of.BearerTokenFile == "" || of.Password != "" || len(of.KeyData) > 0 {
		f.Secrets = []string{p.Kubeconfig}
	}
	for _, file := range []string{of.BearerTokenFile, of.KeyFile} {
		if file != "" {
			f.Files, f.Secrets = append(f.Files, file), append(f.Secrets, file)
		}
	}
	if loose := filePermissionWarnings(f); len(loose) > 0 {
		return []Row{{Warn, check, strings.Join(loose, "; ")}}
	}
	return []Row{{Pass, check, strings.Join(f.Files, ", ")}}
}

// evictionRequests checks that the API server serves what eviction.via: request needs.
func evictionRequests(ctx context.Context, client kubernetes.Interface) Row {
	const check = "eviction requests"
	if err := (&kube.EvictionRequester{REST: client.CoreV1().RESTClient()}).Served(ctx); err != nil {
		return Row{Fail, check, oneLine(err)}
	}
	return Row{Pass, check, "the API server serves them (eviction.via: request)"}
}

// resizes checks that the API server serves what throttle.resize needs.
func resizes(ctx context.Context, client kubernetes.Interface) Row {
	const check = "in-place resize"
	if err := resize.Served(ctx, client.CoreV1().RESTClient()); err != nil {
		return Row{Fail, check, oneLine(err)}
	}
	return Row{Pass, check, "the API server serves pods/resize (throttle.resize: true)"}
}

// dryRun tells what the agent does, and what it only decides.
func (p Examination) dryRun() Row {
	const check = "dry run"
	var does, decides, off []string
	for _, a := range p.Acts {
		switch {
		case a.Off != "":
			off = append(off, a.What+" ("+a.Off+")")
		case a.DryRun != "":
			decides = append(decides, a.What+" ("+a.DryRun+")")
		default:
			does = append(does, a.What)
		}
	}
	text := "in force: " + cmp.Or(strings.Join(does, ", "), "nothing")
	if len(off) > 0 {
		text += "; switched off: " + strings.Join(off, ", ")
	}
	if len(decides) > 0 {
		return Row{Warn, check, "decided and not carried out: " + strings.Join(decides, ", ") + "; " + text}
	}
	return Row{Pass, check, text}
}

// loads reports how many data mover loads may run; velero: there can be some.
func (p Examination) loads(velero bool) Row {
	const check = "data movers"
	switch {
	case !velero:
		return Row{Pass, check, "none: Velero is not installed in this cluster"}
	case p.MoverConcurrency == 0:
		return Row{Pass, check, "not limited (vgdp.enabled: false)"}
	case p.MoverConcurrency == 1:
		return Row{Warn, check, "vgdp.concurrency is 1: the data mover budget cannot shrink, starts can only be held. Let Velero run 4 (loadConcurrency.globalConfig), set vgdp.concurrency: 4, and let Plimsoll limit"}
	}
	return Row{Pass, check, fmt.Sprintf("at most %d data mover loads at a time, fewer under pressure", p.MoverConcurrency)}
}

// apiServer asks for the version, which every client may read.
func apiServer(ctx context.Context, client kubernetes.Interface, host string) Row {
	const check = "API server"
	start := time.Now()
	b, err := client.CoreV1().RESTClient().Get().AbsPath("/version").SetHeader("Accept", "application/json").MaxRetries(0).DoRaw(ctx)
	took := time.Since(start).Round(time.Millisecond)
	if err != nil {
		return Row{Fail, check, host + ": " + oneLine(err)}
	}
	var v version.Info
	if err := yaml.Unmarshal(b, &v); err != nil || v.GitVersion == "" {
		return Row{Fail, check, host + ": not a Kubernetes API server"}
	}
	finding := fmt.Sprintf("%s: Kubernetes %s, answered in %s", host, v.GitVersion, took)
	major, minor, ok := kernelVersion(v.Major + "." + v.Minor)
	switch {
	case !ok || major != 1 || minor >= oldestTried:
		return Row{Pass, check, finding}
	case minor < oldestKubernetes:
		return Row{Fail, check, fmt.Sprintf("%s is older than 1.%d", finding, oldestKubernetes)}
	}
	return Row{Warn, check, fmt.Sprintf("%s; Plimsoll was never tried on a Kubernetes older than 1.%[2]d (docs/compatibility.md): other rows name what they find missing here, but nothing shows that the rest works. An agent outside a pod needs 1.%[2]d: an older API server binds no token to a Node. Upgrade, or first observe with eviction.dryRun: true", finding, oldestTried)}
}

// right is one verb on one resource.
type right struct{ namespace, verb, group, resource, subresource string }

func (r right) String() string {
	what := r.resource
	if r.subresource != "" {
		what += "/" + r.subresource
	}
	if r.group != "" {
		what += "." + r.group
	}
	if r.namespace != "" {
		what += " in " + r.namespace
	}
	return r.verb + " " + what
}

// rights checks by SelfSubjectAccessReviews that the caller has each right that
// the agent uses. Every authenticated user may send those (system:basic-user).
func (p Examination) rights(ctx context.Context, client kubernetes.Interface) Row {
	const check = "rights"
	p.Katalyst = p.Katalyst && serves(ctx, client, "node.katalyst.kubewharf.io") // without it no right is needed
	needed, err := p.neededRights()
	if err != nil {
		return Row{Fail, check, oneLine(err)}
	}
	var missing []string
	for _, r := range needed {
		may, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: r.namespace, Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return Row{Fail, check, fmt.Sprintf("check the right to %s: %s", r, oneLine(err))}
		}
		if !may.Status.Allowed {
			missing = append(missing, r.String())
		}
	}
	if len(missing) > 0 {
		var apply []string
		for _, m := range p.manifests() {
			apply = append(apply, m.file)
		}
		return Row{Fail, check, fmt.Sprintf("%d of %d missing: %s (apply %s)", len(missing), len(needed), strings.Join(missing, ", "), strings.Join(apply, ", "))}
	}
	return Row{Pass, check, fmt.Sprintf("all %d that the agent needs", len(needed))}
}

// serves tells whether the API server has kinds of a group, or does not answer. Every
// authenticated client may ask that.
func serves(ctx context.Context, client kubernetes.Interface, group string) bool {
	return !apierrors.IsNotFound(client.CoreV1().RESTClient().Get().AbsPath("/apis/" + group).Do(ctx).Error())
}

// neededRights are those of the roles in the manifests and, for token reviews,
// those of system:auth-delegator.
func (p Examination) neededRights() ([]right, error) {
	var all []right
	for _, m := range p.manifests() {
		list, err := rightsIn(m.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.file, err)
		}
		all = append(all, list...)
	}
	if p.TokenReview {
		all = append(all, right{"", "create", "authentication.k8s.io", "tokenreviews", ""},
			right{"", "create", "authorization.k8s.io", "subjectaccessreviews", ""})
	}
	return all, nil
}

type manifest struct {
	file   string
	text   []byte
	needed bool
}

// manifests are those that grant the rights this agent needs.
func (p Examination) manifests() []manifest {
	return slices.DeleteFunc([]manifest{
		{"deploy/rbac.yaml", deploy.RBAC, true},
		{"deploy/rbac-evict-direct.yaml", deploy.RBACEvictDirect, p.EvictsDirectly},
		{"deploy/rbac-evict-request.yaml", deploy.RBACEvictRequest, p.RequestsEvictions},
		{"deploy/rbac-resize.yaml", deploy.RBACResize, p.Resizes},
		{"deploy/rbac-lease-node.yaml", deploy.RBACLeaseNode, p.NodeLease != nil},
		{"deploy/rbac-katalyst.yaml", deploy.RBACKatalyst, p.Katalyst},
		{"deploy/rbac-metrics.yaml", deploy.RBACMetrics, p.TokenReview},
	}, func(m manifest) bool { return !m.needed })
}

func rightsIn(manifest []byte) ([]right, error) {
	var all []right
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		// A Role has its rules in the same field as a ClusterRole.
		var role rbacv1.ClusterRole
		err := documents.Decode(&role)
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		case role.Kind == "ClusterRole", role.Kind == "Role":
			all = append(all, rightsOf(role.Namespace, role.Rules)...)
		}
	}
}

func rightsOf(namespace string, rules []rbacv1.PolicyRule) []right {
	var all []right
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, what := range rule.Resources {
				resource, sub, _ := strings.Cut(what, "/")
				for _, verb := range rule.Verbs {
					all = append(all, right{namespace, verb, group, resource, sub})
				}
			}
		}
	}
	return all
}

// oneLine is an error in one line, for a finding.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
