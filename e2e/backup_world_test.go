package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
)

// backupWorld is a cluster with a Velero, whose backup controller is a stand-in, and
// a namespace for each of some applications.
type backupWorld struct {
	t         *testing.T
	c         *cluster.Cluster
	client    dynamic.Interface
	namespace string // Velero's
	velero    *velero.StandIn
	apps      map[string]string // namespaces by short name
	made      []*backup.Object  // in the order of their creation
	includes  map[string][]string
	config    string
}

// newBackupWorld on a control plane that others may use too.
func newBackupWorld(t *testing.T, c *cluster.Cluster, settings string, apps ...string) *backupWorld {
	t.Helper()
	version, err := cluster.Pinned(cluster.Velero)
	require.NoError(t, err)
	definitions, err := velero.Definitions(version)
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), append(definitions, deploy.RBAC, deploy.ControllerRBAC)...))
	client, err := dynamic.NewForConfig(c.Admin)
	require.NoError(t, err)
	f := &backupWorld{t: t, c: c, client: client, namespace: c.Namespace(t), apps: map[string]string{}, includes: map[string][]string{}}
	for _, app := range apps {
		f.apps[app] = app + "-" + f.namespace
		_, err := c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.apps[app]}}, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, c.Client.CoreV1().Namespaces().Delete(contextWithoutCancel(t), f.apps[app], metav1.DeleteOptions{}))
		})
	}
	letElect(t, c, f.namespace)
	f.config = filepath.Join(t.TempDir(), "controller.yaml")
	f.configure("duration: 1s", "enabled: true, stuckAfter: 4s, "+settings)
	f.velero = &velero.StandIn{Client: client, Namespace: f.namespace, Workers: 10, Work: takes(50 * time.Millisecond)}
	return f
}

// takes is a Backup's work that lasts for so long.
func takes(d time.Duration) func(context.Context, string) {
	return func(ctx context.Context, _ string) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
}

// lasts is work that ends when it is told to.
func lasts(end <-chan struct{}) func(context.Context, string) {
	return func(ctx context.Context, _ string) {
		select {
		case <-ctx.Done():
		case <-end:
		}
	}
}

// runVelero until the test ends, or until it is told to.
func (f *backupWorld) runVelero() (stop func()) {
	f.t.Helper()
	ctx, end := context.WithCancel(contextWithoutCancel(f.t))
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.velero.Run(ctx); err != nil {
			f.t.Error(err)
		}
	})
	stop = func() { end(); running.Wait() }
	f.t.Cleanup(stop)
	return stop
}

// letElect lets controllers hold their election in a namespace, as
// deploy.ControllerRBAC does in theirs: other tests have leaders too.
func letElect(t *testing.T, c *cluster.Cluster, namespace string) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "plimsoll-controller"}
	roles := c.Client.RbacV1()
	_, err := roles.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "update"}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = roles.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "plimsoll-system", Name: "plimsoll-controller"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// configure anew what the controllers read: they look each second, and at no
// agents.
func (f *backupWorld) configure(election, backups string) {
	f.t.Helper()
	write(f.t, f.config, fmt.Sprintf("apiVersion: plimsoll.dev/v1alpha1\nkind: ControllerConfiguration\nvelero: [{namespace: %[1]s}]\n"+
		"election: {namespace: %[1]s, %[2]s}\nagents: {enabled: false}\nbackups: {resync: 1s, %[3]s}\n", f.namespace, election, backups))
}

// event of a Backup with a reason, or an error.
func (f *backupWorld) event(name, reason string) (text string, err error) {
	list, err := f.c.Client.CoreV1().Events(f.namespace).List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for _, e := range list.Items {
		if e.InvolvedObject.Name == name && e.Reason == reason {
			return e.Message, nil
		}
	}
	return "", fmt.Errorf("no Event %s of %s", reason, name)
}

// said waits for an Event.
func (f *backupWorld) said(name, reason string) (text string) {
	f.t.Helper()
	eventually(f.t, reason, func() (err error) {
		text, err = f.event(name, reason)
		return err
	})
	return text
}

// controller is prepared to run as its service account.
func (f *backupWorld) controller() *agent {
	f.t.Helper()
	kubeconfig, err := f.c.ServiceAccount(f.t.Context(), "plimsoll-system", "plimsoll-controller", cluster.BoundTo{})
	require.NoError(f.t, err)
	a := &agent{t: f.t, ended: make(chan struct{})}
	a.cmd = exec.Command(binary, "controller", "--config", f.config, "--kubeconfig", kubeconfig, "--web.listen-address", "127.0.0.1:0", "--log.level", "debug")
	a.cmd.Stdout, a.cmd.Stderr = &a.stdout, &a.stderr
	return a
}

// create a Backup of applications, by short name; none: of all namespaces.
func (f *backupWorld) create(name string, apps ...string) {
	f.t.Helper()
	f.createWith(name, nil, apps...)
}

func (f *backupWorld) createWith(name string, annotations map[string]any, apps ...string) {
	f.t.Helper()
	var include []any
	for _, app := range apps {
		if known := f.apps[app]; known != "" {
			app = known
		}
		include = append(include, app)
		f.includes[name] = append(f.includes[name], app)
	}
	meta := map[string]any{"name": name}
	if annotations != nil {
		meta["annotations"] = annotations
	}
	u, err := f.backups().Create(f.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "velero.io/v1", "kind": "Backup", "metadata": meta,
		"spec": map[string]any{"includedNamespaces": include},
	}}, metav1.CreateOptions{})
	require.NoError(f.t, err)
	f.made = append(f.made, backup.Read(u))
}

func (f *backupWorld) backups() dynamic.ResourceInterface {
	return f.client.Resource(velero.Resource()).Namespace(f.namespace)
}

func (f *backupWorld) get(name string) *backup.Object {
	f.t.Helper()
	u, err := f.backups().Get(f.t.Context(), name, metav1.GetOptions{})
	require.NoError(f.t, err)
	return backup.Read(u)
}

// phases of all Backups, by name.
func (f *backupWorld) phases() map[string]string {
	f.t.Helper()
	list, err := f.backups().List(f.t.Context(), metav1.ListOptions{})
	require.NoError(f.t, err)
	all := map[string]string{}
	for i := range list.Items {
		o := backup.Read(&list.Items[i])
		all[o.Name] = string(o.Backup.Phase)
		if o.Backup.Position > 0 {
			all[o.Name] += fmt.Sprint(" ", o.Backup.Position)
		}
	}
	return all
}

// become waits until some Backups are so: "Queued 2", "InProgress".
func (f *backupWorld) become(want map[string]string) {
	f.t.Helper()
	eventually(f.t, "backups are as they must", func() error {
		now := f.phases()
		for name, phase := range want {
			if now[name] != phase {
				return fmt.Errorf("%s is %q and not %q: %v", name, now[name], phase, now)
			}
		}
		return nil
	})
}

// allEnd waits until every Backup is Completed, but for some that end otherwise.
func (f *backupWorld) allEnd(d time.Duration, but ...string) {
	f.t.Helper()
	within(f.t, d, "all backups end", func() error {
		for name, phase := range f.phases() {
			if phase != "Completed" && !slices.Contains(but, name) {
				return fmt.Errorf("%s is %s", name, phase)
			}
		}
		return nil
	})
}

// sound: nothing that overlaps ran together, nothing ran twice, nobody was
// overtaken by what came later and overlaps with it; it returns how many ran
// together at most.
func (f *backupWorld) sound() (most int) {
	f.t.Helper()
	runs := f.velero.Runs()
	place := map[string]int{}
	for i, run := range runs {
		require.Zero(f.t, place[run.Name], "%s ran twice", run.Name)
		place[run.Name] = i + 1
		together := 1
		for _, before := range runs[:i] {
			if before.End.IsZero() || before.End.After(run.Begin) {
				require.False(f.t, f.overlap(before.Name, run.Name), "%s and %s ran together", before.Name, run.Name)
				together++
			}
		}
		most = max(most, together)
	}
	require.Len(f.t, runs, len(f.made), "each has run")
	for i, later := range f.made {
		for _, before := range f.made[:i] {
			if f.overlap(before.Name, later.Name) {
				require.Less(f.t, place[before.Name], place[later.Name], "%s came before %s", before.Name, later.Name)
			}
		}
	}
	return most
}

func (f *backupWorld) overlap(a, b string) bool {
	if len(f.includes[a]) == 0 || len(f.includes[b]) == 0 {
		return true
	}
	for _, x := range f.includes[a] {
		if slices.Contains(f.includes[b], x) {
			return true
		}
	}
	return false
}

// queues as a controller's API says them.
func queues(a *agent) (b struct {
	Leads, Enabled bool
	Leader         string
	Queues         []backup.Report
},
) {
	a.t.Helper()
	require.NoError(a.t, json.Unmarshal([]byte(a.mustGet("/api/v1/backups")), &b))
	return b
}

// metric is the value of a series that must be there.
func metric(a *agent, series string) string {
	a.t.Helper()
	m := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(series) + " (.*)$").FindStringSubmatch(a.mustGet("/metrics"))
	require.NotNil(a.t, m, series)
	return strings.TrimSpace(m[1])
}
