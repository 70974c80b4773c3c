package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/matrix"
)

var update = flag.Bool("update", false, "write the tables of docs/security.md and gate-mutating-v1beta1.yaml anew")

// agents are tokens of the agent's account.
type agents struct {
	c                     *cluster.Cluster
	ofPod, ofNode, ofNone *rest.Config
}

// twoNodes makes mine and theirs, each with a heartbeat and a pod, and tokens
// of the agent of mine.
func twoNodes(t *testing.T) agents {
	t.Helper()
	c := plane(t)
	require.NoError(t, c.Apply(t.Context(), RBAC, RBACEvictDirect, RBACEvictRequest, RBACResize, Heartbeats, Identity, []byte(customNodeResources), []byte(evictionRequestKind)))
	for _, name := range []string{"mine", "theirs"} {
		aNode(t, c, name)
	}
	pod, err := c.Client.CoreV1().Pods("plimsoll-system").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "plimsoll-agent-mine"},
		Spec: corev1.PodSpec{
			NodeName: "mine", ServiceAccountName: "plimsoll-agent", Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Client.CoreV1().Pods("plimsoll-system").Delete(cleanup(t), pod.Name, *metav1.NewDeleteOptions(0)))
	})
	a := agents{
		c:      c,
		ofPod:  as(t, c, "plimsoll-agent", cluster.BoundTo{Kind: "Pod", Name: pod.Name, UID: pod.UID}),
		ofNode: as(t, c, "plimsoll-agent", cluster.BoundTo{Kind: "Node", Name: "mine"}),
		ofNone: as(t, c, "plimsoll-agent", cluster.BoundTo{}),
	}
	a.inForce(t)
	return a
}

// customNodeResources is the kind, without its schema.
const customNodeResources = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: customnoderesources.node.katalyst.kubewharf.io}
spec:
  group: node.katalyst.kubewharf.io
  names: {kind: CustomNodeResource, plural: customnoderesources}
  scope: Cluster
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// evictionRequestKind stands for the kind of Kubernetes 1.37, which no API server serves
// unless it is told to.
const evictionRequestKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: evictionrequests.lifecycle.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, for a test"}}
spec:
  group: lifecycle.k8s.io
  names: {kind: EvictionRequest, plural: evictionrequests}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// aNode with what is tried on.
func aNode(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	added, err := c.AddNode(t.Context(), name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Client.CoreV1().Nodes().Delete(cleanup(t), name, metav1.DeleteOptions{})) })
	added.Spec.Taints = []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}
	_, err = c.Client.CoreV1().Nodes().Update(t.Context(), added, metav1.UpdateOptions{})
	require.NoError(t, err)
	for _, namespace := range []string{"plimsoll-node-lease", "kube-node-lease"} {
		_, err = c.Client.CoordinationV1().Leases(namespace).Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: added.UID}}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			err := c.Client.CoordinationV1().Leases(namespace).Delete(cleanup(t), name, metav1.DeleteOptions{})
			if err != nil {
				t.Log(err) // it goes with its Node
			}
		})
	}
	require.NoError(t, c.Apply(t.Context(), fmt.Appendf(nil, "{apiVersion: %s, kind: CustomNodeResource, metadata: {name: %s}}", "node.katalyst.kubewharf.io/v1alpha1", name)))
	for object, requester := range map[string]string{"plimsoll-" + name: "plimsoll.dev/agent", "of-others-" + name: "acme.io/drain"} {
		require.NoError(t, c.Apply(t.Context(), fmt.Appendf(nil, "{apiVersion: lifecycle.k8s.io/v1alpha1, kind: EvictionRequest, metadata: {name: %s, namespace: default}, spec: {requester: %s, target: {pod: {uid: %s}}}}",
			object, requester, name)))
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "on-" + name},
		Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("512Mi")},
		}}, {Name: "unlimited", Image: "i"}}},
	}
	_, err = c.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Client.CoreV1().Pods("default").Delete(cleanup(t), pod.Name, *metav1.NewDeleteOptions(0)))
	})
}

// inForce waits for the last policies and rights that were applied.
func (a agents) inForce(t *testing.T) {
	t.Helper()
	eventually(t, "the policies are in force", func() error {
		for _, part := range [][]request{onNodes(), onFieldsOfNodes(), onHeartbeats()} {
			for _, r := range part {
				if got := try(t, a.ofPod, r.of("mine")); got != r.own {
					return fmt.Errorf("%s: %s", r.what, got)
				}
			}
		}
		return nil
	})
}

// try what becomes of a request. What the policies let pass and cannot be done
// all the same, as there is such an object or none, is a yes.
func try(t *testing.T, by *rest.Config, r request) string {
	t.Helper()
	if r.method == http.MethodPut {
		var is metav1.PartialObjectMetadata
		_, _, answer := send(t, by, http.MethodGet, r.path, "", "")
		require.NoError(t, json.Unmarshal([]byte(answer), &is))
		r.body = strings.Replace(r.body, `"metadata":{`, `"metadata":{"resourceVersion":"`+is.ResourceVersion+`",`, 1)
	}
	status, _, answer := send(t, by, r.method, r.path, r.kind, r.body)
	switch {
	case status < http.StatusBadRequest, status == http.StatusNotFound, status == http.StatusConflict:
		return yes
	case status == http.StatusForbidden && strings.Contains(answer, "ValidatingAdmissionPolicy 'plimsoll-"):
		return policy
	case status == http.StatusForbidden && strings.Contains(answer, "cannot "):
		return rights
	}
	require.Failf(t, "an answer that nobody thought of", "%s: %d: %s", r.what, status, answer)
	return ""
}

func TestStolenTokenOnOtherNode(t *testing.T) {
	a := twoNodes(t)
	tried := requests()
	if !a.resizes(t) {
		t.Attr(matrix.Smaller, "in-place resizes of pods were not tried: this Kubernetes serves no pods/resize")
		tried = slices.DeleteFunc(tried, func(r request) bool { return strings.HasSuffix(r.path, "/resize") })
	}
	table := &strings.Builder{}
	fmt.Fprintln(table, "| request | on its own node | on another node | a token of no node | own node, if RBAC allowed everything | another, likewise |\n|---|---|---|---|---|---|")
	everything := map[string][2]string{}
	a.withAllRights(t, func() {
		for _, r := range tried {
			everything[r.what] = [2]string{try(t, a.ofPod, r.of("mine")), try(t, a.ofPod, r.of("theirs"))}
			assert.Equal(t, [2]string{r.allOwn, r.allOther}, everything[r.what], r.what)
		}
	})
	for _, r := range tried {
		own, other, unbound := try(t, a.ofPod, r.of("mine")), try(t, a.ofPod, r.of("theirs")), try(t, a.ofNone, r.of("mine"))
		assert.Equal(t, []string{r.own, r.other, r.unbound}, []string{own, other, unbound}, r.what)
		assert.Equal(t, own, try(t, a.ofNode, r.of("mine")), "%s, by a token of the Node", r.what)
		assert.Equal(t, other, try(t, a.ofNode, r.of("theirs")), "%s, by a token of the Node", r.what)
		assert.Equal(t, unbound, try(t, a.ofNone, r.of("theirs")), r.what)
		fmt.Fprintf(table, "| %s | %s | %s | %s | %s | %s |\n", r.what, own, other, unbound, everything[r.what][0], everything[r.what][1])
	}
	if len(tried) == len(requests()) {
		document(t, "requests", table.String())
	}
}

// resizes tells whether the API server serves in-place resizes of pods.
func (a agents) resizes(t *testing.T) bool {
	t.Helper()
	served, err := a.c.Client.Discovery().ServerResourcesForGroupVersion("v1")
	require.NoError(t, err)
	return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == "pods/resize" })
}

// withAllRights does something while RBAC allows the agents everything.
func (a agents) withAllRights(t *testing.T, do func()) {
	t.Helper()
	roles := a.c.Client.RbacV1().ClusterRoleBindings()
	_, err := roles.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "agents-do-everything"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "plimsoll-system", Name: "plimsoll-agent"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = roles.Delete(cleanup(t), "agents-do-everything", metav1.DeleteOptions{}) }) // below, if all is well
	may := func(want string) func() error {
		return func() error {
			secrets := request{what: "secrets", method: http.MethodGet, path: "/api/v1/secrets"}
			if got := try(t, a.ofPod, secrets); got != want {
				return fmt.Errorf("they may: %s", got)
			}
			return nil
		}
	}
	eventually(t, "agents may do everything", may(yes))
	do()
	require.NoError(t, roles.Delete(t.Context(), "agents-do-everything", metav1.DeleteOptions{}))
	eventually(t, "agents may do what they should", may(rights))
}

// document holds what is between the marks of this name in docs/security.md
// against text, or writes it there.
func document(t *testing.T, name, text string) {
	t.Helper()
	const file = "../docs/security.md"
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	begin, end := "<!-- "+name+": written by go test ./deploy -update -->\n", "<!-- end of "+name+" -->"
	before, rest, found := strings.Cut(string(content), begin)
	require.True(t, found, "%s has no %q", file, begin)
	is, after, found := strings.Cut(rest, end)
	require.True(t, found, "%s has no %q", file, end)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+begin+text+end+after), 0o644))
		return
	}
	assert.Empty(t, cmp.Diff(is, text), "go test ./deploy -update, if this is meant")
}

func TestLeaseAnnotationWriters(t *testing.T) {
	a := twoNodes(t)
	for _, row := range []struct {
		who, annotation string
		may             bool
	}{
		{"plimsoll-controller", "plimsoll.dev/eviction-answers", true},
		{"plimsoll-controller", "plimsoll.dev/node-report", false},
		{"plimsoll-controller", "plimsoll.dev/contention", false},
		{"plimsoll-controller", "plimsoll.dev/eviction-requests", false},
		{"plimsoll-controller", "plimsoll.dev/agent", false},
		{"plimsoll-controller", "of/others", true},
		{"somebody", "plimsoll.dev/eviction-answers", false},
		{"somebody", "plimsoll.dev/node-report", false},
		{"somebody", "plimsoll.dev/contention", false},
		{"somebody", "plimsoll.dev/eviction-requests", false},
		{"somebody", "plimsoll.dev/agent", false},
		{"somebody", "of/others", true},
	} {
		t.Run(row.who+" "+row.annotation, func(t *testing.T) {
			config := rest.CopyConfig(a.c.Admin)
			config.Impersonate = rest.ImpersonationConfig{
				UserName: "system:serviceaccount:plimsoll-system:" + row.who, Groups: []string{"system:masters"},
			}
			r := request{what: "annotate", method: http.MethodPatch, path: heartbeat, kind: mergePatch, body: `{"metadata":{"annotations":{"` + row.annotation + `":"x"}}}`}
			assert.Equal(t, map[bool]string{true: yes, false: policy}[row.may], try(t, config, r.of("mine")))
		})
	}
}

// What fails closed must reach no kubelet's Lease: with it a cluster's nodes would
// stop being Ready. Here the policy of the annotations refuses all that it reaches.
func TestLeaseAnnotationPolicyScope(t *testing.T) {
	a := twoNodes(t)
	policies := strings.Split(string(Identity), "\n---\n")
	i := slices.IndexFunc(policies, func(p string) bool {
		return strings.Contains(p, "kind: ValidatingAdmissionPolicy\nmetadata:\n  name: plimsoll-lease-annotations\n")
	})
	require.GreaterOrEqual(t, i, 0)
	before, _, found := strings.Cut(policies[i], "  validations:\n")
	require.True(t, found)
	require.NoError(t, a.c.Apply(t.Context(), []byte(before+"  validations:\n    - {expression: \"false\", reason: Forbidden}\n")))
	defer func() { assert.NoError(t, a.c.Apply(cleanup(t), Identity)) }()
	words := request{what: "carry", method: http.MethodPatch, path: heartbeat, kind: mergePatch}.of("mine")
	n := 0
	eventually(t, "the policy refuses all", func() error {
		n++
		words.body = fmt.Sprintf(`{"metadata":{"annotations":{"plimsoll.dev/node-report":"{\"n\":%d}"}}}`, n)
		if got := try(t, a.ofPod, words); got != policy {
			return errors.New(got)
		}
		return nil
	})
	kubelet := rest.CopyConfig(a.c.Admin)
	kubelet.Impersonate = rest.ImpersonationConfig{UserName: "system:node:mine", Groups: []string{"system:masters"}}
	kubes := strings.Replace(heartbeat, "plimsoll", "kube", 1)
	const beat, others = `{"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}`, `{"metadata":{"annotations":{"of/others":"x"}}}`
	for _, r := range []struct {
		by         *rest.Config
		what, path string
		body       string
	}{
		{kubelet, "a kubelet's beat", kubes, beat},
		{kubelet, "an annotation of its Lease", kubes, `{"metadata":{"annotations":{"plimsoll.dev/node-report":"x"}}}`},
		{a.ofPod, "a beat that carries nothing new", heartbeat, beat},
		{kubelet, "an annotation of others", heartbeat, others},
	} {
		of := request{what: r.what, method: http.MethodPatch, path: r.path, kind: mergePatch, body: r.body}.of("mine")
		assert.Equal(t, yes, try(t, r.by, of), r.what)
	}
}

// An agent must be able to go on where somebody spoiled what it wrote.
func TestAgentTakesHeartbeatBack(t *testing.T) {
	a := twoNodes(t)
	leases := a.c.Client.CoordinationV1().Leases("plimsoll-node-lease")
	_, err := leases.Patch(t.Context(), "mine", "application/merge-patch+json",
		[]byte(`{"metadata":{"ownerReferences":null},"spec":{"holderIdentity":"somebody"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	agent, err := kubernetes.NewForConfig(a.ofNode)
	require.NoError(t, err)
	_, err = agent.CoordinationV1().Leases("plimsoll-node-lease").Patch(t.Context(), "mine", "application/merge-patch+json",
		fmt.Appendf(nil, `{"spec":{"holderIdentity":"mine","renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro)), metav1.PatchOptions{})
	require.NoError(t, err)
	l, err := agent.CoordinationV1().Leases("plimsoll-node-lease").Patch(t.Context(), "mine", "application/merge-patch+json",
		[]byte(`{"spec":{"renewTime":null}}`), metav1.PatchOptions{})
	require.NoError(t, err, "an agent with lease.enabled: false withdraws it")
	assert.Nil(t, l.Spec.RenewTime)
}

// The priority of Plimsoll's pods is no other pod's, whoever makes it; the pods that the
// chart makes are admitted.
func TestPriorityClassOursAlone(t *testing.T) {
	c := plane(t)
	require.NoError(t, c.Apply(t.Context(), RBAC))
	text, err := os.ReadFile("plimsoll.yaml")
	require.NoError(t, err)
	var agent appsv1.DaemonSet
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		switch {
		case strings.Contains(document, "\nkind: PriorityClass\n"):
			other := strings.NewReplacer("plimsoll-non-preempting", "plimsoll", "Policy: Never", "Policy: PreemptLowerPriority").Replace(document)
			require.NoError(t, c.Apply(t.Context(), []byte(document), []byte(other)))
		case strings.Contains(document, "\n  name: plimsoll-priority\n"):
			require.NoError(t, c.Apply(t.Context(), []byte(document)))
		case strings.Contains(document, "\nkind: DaemonSet\n"):
			require.NoError(t, yaml.Unmarshal([]byte(document), &agent))
		}
	}
	tenant := rest.CopyConfig(c.Admin)
	tenant.Impersonate = rest.ImpersonationConfig{UserName: "tenant", Groups: []string{"system:masters"}}
	made := func(in string, spec corev1.PodSpec) (status int, answer string) {
		body, err := json.Marshal(corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: spec})
		require.NoError(t, err)
		status, _, answer = send(t, tenant, http.MethodPost, "/api/v1/namespaces/"+in+"/pods?dryRun=All", plain, string(body))
		return status, answer
	}
	theirs := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	status, answer := made("default", theirs)
	assert.Equal(t, http.StatusCreated, status, answer)
	for _, class := range []string{"plimsoll", "plimsoll-non-preempting"} {
		theirs.PriorityClassName = class
		eventually(t, class+" is refused", func() error { // the API server knows the class a moment later
			if status, answer := made("default", theirs); status != http.StatusForbidden || !strings.Contains(answer, "ValidatingAdmissionPolicy 'plimsoll-priority'") {
				return fmt.Errorf("%d: %s", status, answer)
			}
			return nil
		})
	}
	require.Equal(t, "plimsoll-non-preempting", agent.Spec.Template.Spec.PriorityClassName)
	status, answer = made("plimsoll-system", agent.Spec.Template.Spec)
	assert.Equal(t, http.StatusCreated, status, answer)
}

// A right that is added later is bound, too.
func TestAgentWritesBoundToNode(t *testing.T) {
	var binds admissionv1.ValidatingAdmissionPolicy
	require.NoError(t, yaml.Unmarshal([]byte(strings.Split(string(Identity), "\n---\n")[0]), &binds))
	bound := map[string]bool{}
	for _, rule := range binds.Spec.MatchConstraints.ResourceRules {
		for _, resource := range rule.Resources {
			bound[rule.APIGroups[0]+"/"+resource] = true
		}
	}
	written := writtenBy(t, RBAC, RBACEvictDirect, RBACEvictRequest, RBACKatalyst)
	assert.Len(t, written, 9, "nodes, their status, evictions, events, leases, EvictionRequests made and withdrawn, CustomNodeResources, their status")
	for _, resource := range written {
		assert.True(t, bound[resource], "%s is bound to no node", resource)
	}
}

// writtenBy is what the roles of the manifests let somebody write, as group/resource.
func writtenBy(t *testing.T, manifests ...[]byte) (written []string) {
	t.Helper()
	for document := range strings.SplitSeq(string(bytes.Join(manifests, []byte("\n---\n"))), "\n---\n") {
		var role rbacv1.ClusterRole
		require.NoError(t, yaml.Unmarshal([]byte(document), &role))
		for _, rule := range role.Rules {
			if !slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) }) {
				continue // it only reads
			}
			for _, resource := range rule.Resources {
				written = append(written, rule.APIGroups[0]+"/"+resource)
			}
		}
	}
	return written
}
