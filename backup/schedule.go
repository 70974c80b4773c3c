package backup

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plimsoll-dev/plimsoll/backup/objective"
	"github.com/plimsoll-dev/plimsoll/store"
)

// ScheduleResource of Velero's Schedules.
func ScheduleResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "velero.io", Version: "v1", Resource: "schedules"}
}

// Schedule is a Schedule, trimmed to what deadlines need.
type Schedule struct {
	// ObjectMeta has identity, version and creation only.
	metav1.ObjectMeta

	// Expression of its cron, and what it means; CronErr: it has no meaning.
	Expression string
	Cron       objective.Cron
	CronErr    error
	// Period is the longest time between two of its Backups.
	Period time.Duration
	Paused bool
	// Last is from when Velero counts to the next Backup: when it created or skipped the last,
	// else the creation of the Schedule.
	Last time.Time
	// Annotations are those of the user that say what is wanted (objective.Of).
	Annotations map[string]string
	// Include and Exclude are the patterns of namespaces of its Backups.
	Include, Exclude []string
}

// ReadSchedule converts a Schedule. Missing fields, and those of a wrong type, count as
// unset.
func ReadSchedule(u *unstructured.Unstructured) *Schedule {
	s := &Schedule{ObjectMeta: metav1.ObjectMeta{
		Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
		CreationTimestamp: u.GetCreationTimestamp(), DeletionTimestamp: u.GetDeletionTimestamp(),
	}}
	s.Expression, _, _ = unstructured.NestedString(u.Object, "spec", "schedule")
	s.Paused, _, _ = unstructured.NestedBool(u.Object, "spec", "paused")
	s.Include, _, _ = unstructured.NestedStringSlice(u.Object, "spec", "template", "includedNamespaces")
	s.Exclude, _, _ = unstructured.NestedStringSlice(u.Object, "spec", "template", "excludedNamespaces")
	s.Annotations = objective.Of(u.GetAnnotations())
	if s.Cron, s.CronErr = objective.ParseCron(s.Expression); s.CronErr == nil {
		s.Period = s.Cron.Period(s.CreationTimestamp.Time)
	}
	if s.Last = timeOf(u, "lastBackup"); s.Last.IsZero() {
		s.Last = s.CreationTimestamp.Time
	}
	s.Last = later(s.Last, timeOf(u, "lastSkipped"))
	return s
}

// next is when Velero creates the next Backup, beside those that exist; zero: never. It looks
// once a minute whether one is due, and creates none while another one is New or InProgress.
func (s *Schedule) next(now time.Time, exist []*Object) time.Time {
	var newest time.Time
	busy := false
	for _, o := range exist {
		newest = later(newest, o.Backup.Created)
		busy = busy || o.Backup.isNew() || o.Backup.Phase == InProgress
	}
	at := s.Cron.Next(s.Last)
	if !newest.Before(at) {
		at = s.Cron.Next(newest) // Last is not written yet
	}
	switch {
	case at.IsZero() || at.After(now):
		return at
	case busy:
		return s.Cron.Next(now)
	}
	return now
}

func trimSchedule(o any) (*Schedule, error) {
	switch o := o.(type) {
	case *Schedule:
		return o, nil
	case *unstructured.Unstructured:
		return ReadSchedule(o), nil
	}
	return nil, store.ErrType(o)
}

// wantedChanged tells whether an update of a Schedule changes what deadlines need:
// Velero writes its status with each Backup.
func wantedChanged(was, is *Schedule) (wake bool) {
	return was.Expression != is.Expression || was.Paused != is.Paused || !maps.Equal(was.Annotations, is.Annotations)
}

// backupAt is the Backup that it creates then, as Velero names it.
func (s *Schedule) backupAt(at time.Time) Backup {
	name := s.Name + "-" + at.UTC().Format("20060102150405")
	return Backup{
		UID: "to come: " + name, Namespace: s.Namespace, Name: name, Created: at,
		Include: s.Include, Exclude: s.Exclude, Schedule: s.Name,
	}
}
