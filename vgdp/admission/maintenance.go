package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/store"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// RepositoryResource of BackupRepositories.
func RepositoryResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: names.VeleroGroup, Version: "v1", Resource: "backuprepositories"}
}

// repository is a BackupRepository.
type repository struct {
	metav1.ObjectMeta

	Of vgdp.Repository
}

func trimRepository(o any) (*repository, error) {
	switch u := o.(type) {
	case *repository:
		return u, nil
	case *unstructured.Unstructured:
		return readRepository(u), nil
	}
	return nil, store.ErrType(o)
}

func readRepository(u *unstructured.Unstructured) *repository {
	f := fields(u.Object)
	r := &repository{
		ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()},
		Of: vgdp.Repository{
			Namespace: u.GetNamespace(), Name: u.GetName(),
			Key:           vgdp.RepositoryKey{VolumeNamespace: f.text("spec", "volumeNamespace"), Location: f.text("spec", "backupStorageLocation")},
			FrequencyText: f.text("spec", "maintenanceFrequency"), Last: f.time("status", "lastMaintenanceTime"),
			Postponed: postponed(u.GetAnnotations()),
		},
	}
	if d, err := time.ParseDuration(r.Of.FrequencyText); err == nil {
		r.Of.Frequency = d
	}
	return r
}

// postponed is what the annotation says; nil: there is none. One that is not readable is
// no frequency of ours.
func postponed(annotations map[string]string) *vgdp.Postponed {
	text, there := annotations[gate.Postponed]
	if !there {
		return nil
	}
	p := &vgdp.Postponed{}
	if json.Unmarshal([]byte(text), p) != nil {
		return &vgdp.Postponed{}
	}
	return p
}

func repositoryChanged(was, is *repository) bool {
	samePostponed := (was.Of.Postponed == nil) == (is.Of.Postponed == nil) && (was.Of.Postponed == nil || *was.Of.Postponed == *is.Of.Postponed)
	return !samePostponed || was.Of.FrequencyText != is.Of.FrequencyText || !was.Of.Last.Equal(is.Of.Last) || was.Of.Key != is.Of.Key
}

// maintainer is the part of a Reconciler that postpones maintenances.
type maintainer struct{ *Reconciler }

// maintenances are what the decision about the maintenances depends on.
func (r maintainer) maintenances(in *vgdp.Input, s Settings) vgdp.Maintenances {
	m := vgdp.Maintenances{Enabled: s.Enabled && s.Maintenance, Off: map[string]bool{}, Nodes: in.Topology.Plain(), Pressed: map[string]string{}}
	for node, p := range in.Pressure {
		m.Pressed[node] = p.Why
	}
	m.AddInUse(in.Loads, in.Time)
	for namespace := range in.Veleros {
		v := r.veleros[namespace]
		m.Off[namespace] = v.unnamed
		running := slices.DeleteFunc(v.backups.List(), func(b *parentBackup) bool { return !b.Running })
		for _, o := range v.repositories.List() {
			m.Repositories = append(m.Repositories, o.Of)
			useByBackups(&m, &o.Of, running)
		}
		for _, p := range v.movers.List() {
			if p.Labels[names.MaintenanceLabel] != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				m.Running = append(m.Running, vgdp.MaintenancePod{Namespace: namespace, Node: p.Spec.NodeName})
			}
		}
	}
	slices.SortFunc(m.Repositories, func(a, b vgdp.Repository) int {
		return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
	})
	return m
}

// useByBackups records that a running Backup uses a repository: its data mover loads may
// be created at any moment.
func useByBackups(m *vgdp.Maintenances, r *vgdp.Repository, running []*parentBackup) {
	for _, b := range running {
		if b.Location == r.Key.Location && b.includes(r.Key.VolumeNamespace) {
			m.Use(r.Namespace, r.Key, fmt.Sprintf("Backup %s is running", b.Name))
		}
	}
}

// includes tells whether a Backup may back up a namespace. Velero allows wildcards from
// 1.18 on.
func (b *parentBackup) includes(namespace string) bool {
	in := func(list []string) bool {
		return slices.ContainsFunc(list, func(pattern string) bool {
			matches, err := path.Match(pattern, namespace)
			return pattern == namespace || err == nil && matches
		})
	}
	return (len(b.Included) == 0 || in(b.Included)) && !in(b.Excluded)
}

// writeFrequencies writes the frequencies of a decision, for as long as writes may take in
// a round.
func (r maintainer) writeFrequencies(ctx context.Context, d *vgdp.MaintenanceDecision) {
	until := time.Now().Add(maxWriteTime)
	known := map[string]bool{} // the Veleros whose repositories are known as last written
	for namespace, v := range r.veleros {
		known[namespace] = v.repositories.CaughtUp()
	}
	for i := range d.Writes {
		if ctx.Err() != nil || time.Now().After(until) {
			r.wake.Set()
			return
		}
		w := &d.Writes[i]
		o, there := r.veleros[w.Namespace].repositories.Get(w.Namespace, w.Name)
		if known[w.Namespace] && there && !r.refused.Held(o.UID, o.ResourceVersion) {
			r.recordFrequency(ctx, w, r.writeFrequency(ctx, w, o))
		}
	}
}

// writeFrequency writes one BackupRepository, if it is as it was when the write was decided
// (optimistic concurrency).
func (r maintainer) writeFrequency(ctx context.Context, w *vgdp.FrequencyWrite, o *repository) error {
	if repositoryChanged(&repository{Of: *w.Repository}, o) {
		return apierrors.NewConflict(RepositoryResource().GroupResource(), w.Name, errChanged)
	}
	body, err := frequencyPatch(o.ResourceVersion, w)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	u, err := r.Dynamic.Resource(RepositoryResource()).Namespace(w.Namespace).Patch(ctx, w.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: reconcile.FieldManager})
	if err != nil {
		r.refused.Failed(o.UID, o.ResourceVersion, err, false)
		return err
	}
	r.refused.Made()
	r.veleros[w.Namespace].repositories.Wrote(w.Namespace, w.Name, u.GetResourceVersion())
	return nil
}

var errChanged = errors.New("it has changed since it was observed")

// frequencyPatch is the JSON merge patch for the version that was observed.
func frequencyPatch(version string, w *vgdp.FrequencyWrite) ([]byte, error) {
	var annotation any // nil removes it
	if w.Postponed != nil {
		text, err := json.Marshal(w.Postponed)
		if err != nil {
			return nil, fmt.Errorf("postponed maintenance of %s/%s: %w", w.Namespace, w.Name, err)
		}
		annotation = string(text)
	}
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": version, "annotations": map[string]any{gate.Postponed: annotation}}}
	if w.Text != "" {
		patch["spec"] = map[string]any{"maintenanceFrequency": w.Text}
	}
	return json.Marshal(patch)
}

// recordFrequency records the result of a write. A failure is logged when it begins and
// changes.
func (r maintainer) recordFrequency(ctx context.Context, w *vgdp.FrequencyWrite, err error) {
	name := w.Namespace + "/" + w.Name
	if err != nil {
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			r.counters.Change(func(c *Counts) { c.Failures++ })
			r.publisher.logFrequencyFailure(w.Namespace, err.Error(), name)
			return
		}
		r.counters.Change(func(c *Counts) { c.Conflicts++ })
		return
	}
	r.publisher.logFrequencyFailure(w.Namespace, "", name)
	if w.Postponed == nil {
		r.counters.Change(func(c *Counts) { c.Writes.Add(KindHandBack) })
		r.Log.Info("maintenance frequency of backup repository handed back", "repository", name, "frequency", w.HandedBack())
		return
	}
	r.counters.Change(func(c *Counts) { c.Writes.Add(KindPostpone) })
	r.Log.Info("maintenance of backup repository postponed", "repository", name, "reason", w.Why, "frequency", w.Text, "was", w.Postponed.Was)
}

// logFrequencyFailure logs an error of a Velero when it begins and changes; empty: it is
// over.
func (p *publisher) logFrequencyFailure(velero, text, name string) {
	if text != "" && text != p.frequencyFailed[velero] {
		p.log.Warn("failed to write maintenance frequency of backup repository; retrying", "repository", name, "error", text)
	}
	p.frequencyFailed[velero] = text
}

// findPostponed adds the Veleros with a postponed maintenance, where that is handed back.
func (r maintainer) findPostponed(ctx context.Context) error {
	list, err := r.Dynamic.Resource(RepositoryResource()).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // there is no Velero, or an older role that could postpone none
		return nil
	}
	if err != nil {
		return err
	}
	for i := range list.Items {
		u := &list.Items[i]
		if namespace := u.GetNamespace(); postponed(u.GetAnnotations()) != nil && r.veleros[namespace] == nil && r.releases(namespace) {
			r.addReleased(namespace)
			r.Log.Info("found postponed maintenances while admission is disabled, or the configuration names other veleros; handing their frequencies back", "velero", namespace)
		}
	}
	return nil
}

// ReleaseRepositoryPatch is the JSON merge patch that hands back the maintenance frequency
// of a BackupRepository; nil: it is not ours.
func ReleaseRepositoryPatch(u *unstructured.Unstructured) ([]byte, error) {
	o := readRepository(u)
	w := o.Of.Release()
	if w == nil {
		return nil, nil
	}
	return frequencyPatch(o.ResourceVersion, w)
}

// addMaintenances adds the postponed maintenances to the reports.
func (r maintainer) addMaintenances(list []Report, d *vgdp.MaintenanceDecision) {
	for i := range list {
		p := &list[i]
		if v := r.veleros[p.Namespace]; p.Problem == "" && !v.repositories.Synced() {
			p.MaintenanceProblem = "its backup repositories are not listed: Velero maintains them as without Plimsoll (apply deploy/rbac-controller.yaml)"
		}
		for _, m := range d.Postponed {
			if m.Namespace != p.Namespace {
				continue
			}
			if p.MaintenanceCount++; len(p.Maintenances) < maxWaiting {
				p.Maintenances = append(p.Maintenances, m)
			}
		}
	}
}
