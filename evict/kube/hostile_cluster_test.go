package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// tenancy is a node as an agent sees it, and a tenant who may edit a namespace.
type tenancy struct {
	scene
	tenant  *kubernetes.Clientset
	watcher *pods.Watcher
}

func newTenancy(t *testing.T, node string) tenancy {
	c := sharedPlane(t)
	s := tenancy{scene: newScene(t, c, node)}
	name := "tenant-of-" + s.namespace
	_, err := c.Client.RbacV1().RoleBindings(s.namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	config, err := c.User(name)
	require.NoError(t, err)
	s.tenant, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	s.permitted("create", "", "pods")
	agent := agentClient(t, c)
	s.watcher = &pods.Watcher{Node: node, Pods: agent.CoreV1(), Claims: agent.CoreV1(), Volumes: agent.CoreV1(), Log: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.watcher.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	return s
}

// within waits until there is no complaint.
func (s tenancy) within(what string, check func() error) {
	s.t.Helper()
	deadline.Within(s.t, 2*soon, what, check)
}

// permitted waits until the tenant may do something: RBAC follows a binding in
// its own time.
func (s tenancy) permitted(verb, group, what string) {
	s.t.Helper()
	s.within("the tenant may "+verb+" "+what, func() error {
		allowed, err := s.may(verb, group, what, "")
		if err == nil && !allowed {
			err = errors.New("not yet")
		}
		return err
	})
}

func (s tenancy) may(verb, group, what, part string) (bool, error) {
	review, err := s.tenant.AuthorizationV1().SelfSubjectAccessReviews().Create(s.t.Context(), &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: s.namespace, Verb: verb, Group: group, Resource: what, Subresource: part,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// template is a pod of the tenant's, which stays on a Node that no kubelet
// keeps ready.
func (s tenancy) template(name string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{cluster.NodeLabel: s.node},
			Tolerations: []corev1.Toleration{
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists},
			},
			Containers: []corev1.Container{{Name: "a", Image: "x", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")},
			}}},
		},
	}
}

// deploy makes a Deployment as the tenant; the control plane makes its pod.
func (s tenancy) deploy(name string, change func(*corev1.PodTemplateSpec)) error {
	s.t.Helper()
	template := s.template(name)
	change(&template)
	_, err := s.tenant.AppsV1().Deployments(s.namespace).Create(s.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template},
	}, metav1.CreateOptions{})
	return err
}

// seen waits until the agent's own copy has a pod for which ready holds, by the
// beginning of its name.
func (s tenancy) seen(name string, ready func(*pods.Pod) bool) (found pods.Pod) {
	s.t.Helper()
	s.within(name+" is seen", func() error {
		for _, p := range s.watcher.List(pods.DefaultRules()).Pods {
			if p.Namespace == s.namespace && strings.HasPrefix(p.Name, name) && ready(&p) {
				found = p
				return nil
			}
		}
		return errors.New("not yet")
	})
	return found
}

func alive(p *pods.Pod) bool { return p.TerminatesBy.IsZero() }

// decides is a round in which memory is short: what it says of the culprit, and
// who would go.
func (s tenancy) decides(m evict.State, culprit, innocent pods.Pod) (evict.Decision, string) {
	s.t.Helper()
	require.NoError(s.t, s.watcher.Resolve(s.t.Context(), []string{culprit.UID, innocent.UID}))
	v := pressing(named(culprit.UID, 60), named(innocent.UID, 20))
	in := round(0, nil, v)
	in.Cluster.Pods, in.State = s.watcher.List(in.Config.Protect), m
	in.Time = time.Now()
	in.Levels.Time = in.Time
	d, _ := evict.Decide(in)
	i, some := d.Next()
	if !some {
		return d, ""
	}
	return d, d.Candidates[i].Pod.UID
}

// Each template is one that a tenant may write. The Deployment, the pod and the
// node it is on are made by the real API server, controller manager and
// scheduler.
func TestTenantTemplateCannotAvoidEviction(t *testing.T) {
	s := newTenancy(t, "evict-hostile")
	labelled := func(key string) func(*corev1.PodTemplateSpec) {
		return func(p *corev1.PodTemplateSpec) { p.Labels[key] = "x" }
	}
	annotated := func(keys ...string) func(*corev1.PodTemplateSpec) {
		return func(p *corev1.PodTemplateSpec) {
			p.Annotations = map[string]string{}
			for _, key := range keys {
				key, value, _ := strings.Cut(key, "=")
				p.Annotations[key] = value
			}
		}
	}
	rows := map[string]struct {
		change func(*corev1.PodTemplateSpec)
		stays  evict.Code // the reason why it is never evicted; empty: it goes
	}{
		"static":       {change: annotated("kubernetes.io/config.source=file", "kubernetes.io/config.hash=0123", "kubernetes.io/config.seen=now")},
		"critical-pod": {change: annotated("scheduler.alpha.kubernetes.io/critical-pod=")},
		"opted-out":    {change: annotated("plimsoll.dev/skip-eviction=true", "katalyst.kubewharf.io/qos_level=system_cores")},
		"du":           {change: labelled("velero.io/data-upload")},
		"dd":           {change: labelled("velero.io/data-download")},
		"pvb":          {change: labelled("velero.io/pod-volume-backup")},
		"pvr":          {change: labelled("velero.io/pod-volume-restore")},
		"tolerant": {change: func(p *corev1.PodTemplateSpec) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}},
		"month":     {change: func(p *corev1.PodTemplateSpec) { p.Spec.TerminationGracePeriodSeconds = new(int64(month)) }},
		"finalizer": {change: func(p *corev1.PodTemplateSpec) { p.Finalizers = []string{"example.org/stay"} }},
		"owned": {change: func(p *corev1.PodTemplateSpec) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: new(true)}}
		}},
		"mirror": {change: func(p *corev1.PodTemplateSpec) {
			annotated("kubernetes.io/config.mirror=0123", "kubernetes.io/config.source=file")(p)
			p.Spec.NodeName = s.node
		}, stays: pods.OnlyHere},
		"placed": {change: func(p *corev1.PodTemplateSpec) { p.Spec.NodeName = s.node }, stays: pods.OnlyHere},
		"pinned": {change: func(p *corev1.PodTemplateSpec) {
			p.Spec.NodeSelector[corev1.LabelHostname] = s.node
		}, stays: pods.OnlyHere},
		"system": {change: func(p *corev1.PodTemplateSpec) { p.Spec.PriorityClassName = "system-node-critical" }, stays: pods.Critical},
	}
	require.NoError(t, s.deploy("innocent", func(*corev1.PodTemplateSpec) {}))
	for name, row := range rows {
		require.NoError(t, s.deploy(name, row.change), name)
	}
	require.ErrorContains(t, s.deploy("mirror-placed-by-scheduler", annotated("kubernetes.io/config.mirror=0123")), "must set spec.nodeName")
	innocent := s.seen("innocent-", alive)
	require.Empty(t, innocent.Protections)
	for name, row := range rows {
		culprit := s.seen(name+"-", alive)
		assert.Equal(t, culprit.UID, culprit.CgroupUID, "%s is found by its own cgroup", name)
		d, next := s.decides(seasoned(), culprit, innocent)
		if row.stays != "" { // and another goes, for what a safety rule says of it is true
			assert.Equal(t, row.stays, codes(d)[culprit.UID], "%s: %+v", name, culprit.Protections)
			assert.Equal(t, innocent.UID, next)
			t.Logf("%-9s stays: %s", name, culprit.Protections[0].Why)
			continue
		}
		require.Equal(t, culprit.UID, next, name)
		i, _ := d.Next()
		got := s.evictor.Evict(t.Context(), d.Victim(i, evict.DefaultConfig().MaxTerminationGrace), false)
		require.Equal(t, evict.Evicted, got.Outcome, "%s: %s", name, got.Text)
		ends := s.seen(culprit.Name, func(p *pods.Pod) bool { return !p.TerminatesBy.IsZero() })
		assert.WithinDuration(t, time.Now(), ends.TerminatesBy, soon, "%s gets no longer than any", name)
	}
	assert.False(t, s.ends(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: innocent.Name, UID: types.UID(innocent.UID)}}), "nobody went in its place")
}

// The priority of the system protects wherever it is given. Who may give it is for
// a quota to say.
func TestTenantQuotaForbidsSystemPriority(t *testing.T) {
	s := newTenancy(t, "evict-quota")
	_, err := s.Client.CoreV1().ResourceQuotas(s.namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "no-system-pods"},
		Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")},
			ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{
				ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn,
				Values: []string{"system-node-critical", "system-cluster-critical"},
			}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, class := range []string{"system-node-critical", "system-cluster-critical"} {
		s.within(class+" is refused", func() error {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: s.template("p").Spec}
			pod.Spec.PriorityClassName = class
			_, err := s.tenant.CoreV1().Pods(s.namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			switch {
			case err == nil:
				return errors.New("it is made")
			case strings.Contains(err.Error(), "exceeded quota: no-system-pods"):
				return nil
			}
			return err
		})
	}
	require.NoError(t, s.deploy("ordinary", func(*corev1.PodTemplateSpec) {}))
	s.seen("ordinary-", alive)
}

// What a tenant may do to its pods beside making them.
func TestTenantChangesCannotAvoidEviction(t *testing.T) {
	s := newTenancy(t, "evict-tenant")
	for what, not := range map[string]string{"writes the status of its pods": "status", "resizes them": "resize"} {
		may, err := s.may("patch", "", "pods", not)
		require.NoError(t, err)
		assert.False(t, may, "by the role edit a tenant %s", what)
	}
	require.NoError(t, s.deploy("innocent", func(*corev1.PodTemplateSpec) {}))
	require.NoError(t, s.deploy("erased", func(*corev1.PodTemplateSpec) {}))
	require.NoError(t, s.deploy("deleted", func(*corev1.PodTemplateSpec) {}))
	innocent, erased, deleted := s.seen("innocent-", alive), s.seen("erased-", alive), s.seen("deleted-", alive)

	theirs := s.tenant.CoreV1().Pods(s.namespace)
	patched, err := theirs.Patch(t.Context(), erased.Name, types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Empty(t, patched.ManagedFields)
	s.within("the agent sees that the record is gone", func() error {
		list := s.watcher.List(pods.DefaultRules())
		if i := slices.IndexFunc(list.Pods, func(p pods.Pod) bool { return p.UID == erased.UID }); i < 0 || len(list.Pods[i].Protections) > 0 {
			return fmt.Errorf("%d pods, the deleted one is protected or not listed", len(list.Pods))
		}
		return nil
	})
	_, next := s.decides(seasoned(), erased, innocent)
	assert.Equal(t, erased.UID, next, "a record that was erased protects nothing")

	require.NoError(t, theirs.Delete(t.Context(), deleted.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(month))}))
	deleted = s.seen(deleted.Name, func(p *pods.Pod) bool { return !p.TerminatesBy.IsZero() })
	require.Greater(t, time.Until(deleted.TerminatesBy), 29*24*time.Hour)
	d, next := s.decides(seasoned(), deleted, innocent)
	assert.Empty(t, next, "at first it counts as ending")
	assert.Equal(t, evict.CodeTerminating, d.Code)
	m := seasoned()
	m.Terminating = map[string]time.Time{deleted.UID: time.Now().Add(-evict.DefaultConfig().MaxTerminationGrace - evict.DefaultConfig().OverdueAfter)}
	d, next = s.decides(m, deleted, innocent)
	require.Equal(t, deleted.UID, next, "then it is a pod like any other: %s", d.Reason)
	i, _ := d.Next()
	got := s.evictor.Evict(t.Context(), d.Victim(i, evict.DefaultConfig().MaxTerminationGrace), false)
	require.Equal(t, evict.Evicted, got.Outcome, got.Text)
	deleted = s.seen(deleted.Name, func(p *pods.Pod) bool { return time.Until(p.TerminatesBy) < time.Hour })
	t.Logf("its eviction shortened a month to %s", time.Until(deleted.TerminatesBy).Round(time.Second))
}

// Whoever may make pods may write their owners too. Where they are made up the
// garbage collector ends the pod.
func TestTenantMadeUpOwnerCollected(t *testing.T) {
	s := newTenancy(t, "evict-made-up")
	theirs := s.tenant.CoreV1().Pods(s.namespace)
	for name, owner := range map[string]metav1.OwnerReference{
		"daemonset": {APIVersion: "apps/v1", Kind: "DaemonSet", Name: "node-agent", UID: "00000000-0000-4000-8000-000000000001", Controller: new(true)},
		"node":      {APIVersion: "v1", Kind: "Node", Name: s.node, UID: "00000000-0000-4000-8000-000000000002", Controller: new(true)},
	} {
		template := s.template(name)
		template.OwnerReferences, template.Name = []metav1.OwnerReference{owner}, name
		template.Spec.NodeName = s.node
		if name == "node" {
			template.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "0123"}
		}
		made, err := theirs.Create(t.Context(), &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}, metav1.CreateOptions{})
		require.NoError(t, err)
		s.within(name+" is ended", func() error {
			now, err := theirs.Get(t.Context(), name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				return nil
			case err != nil:
				return err
			case now.UID == made.UID && now.DeletionTimestamp == nil:
				return errors.New("it lives")
			}
			return nil
		})
	}
}
