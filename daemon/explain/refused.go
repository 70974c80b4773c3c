package explain

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/reconcile"
)

// refusals are the newest Events that say that the API server refuses to change a Backup, by
// its UID. Only the leader tries to write: without its Events they are not known.
type refusals struct {
	events  map[types.UID]Event
	held    backup.Refusals
	unknown error // why the Events cannot be read
}

// readRefusals reads the controller's Events about the Backups of a Velero. The leader tries
// again with its first round after backup.RefusedFor.
func readRefusals(ctx context.Context, from corev1client.EventsGetter, namespace string, resync time.Duration) refusals {
	ours := fields.AndSelectors(
		fields.OneTermEqualSelector("involvedObject.kind", "Backup"),
		fields.OneTermEqualSelector("reason", backup.ReasonRefused),
		fields.OneTermEqualSelector("source", reconcile.FieldManager),
	)
	list, err := from.Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: ours.String()})
	if err != nil {
		return refusals{unknown: fmt.Errorf("list events: %w", err)}
	}
	r := refusals{events: map[types.UID]Event{}, held: backup.Refusals{}}
	for i := range list.Items {
		b, e := &list.Items[i].InvolvedObject, newEvent(&list.Items[i])
		if !e.Time.Before(r.events[b.UID].Time) { // of one second the last
			r.events[b.UID] = e
			r.held.Add(b.UID, b.ResourceVersion, e.Time.Add(backup.RefusedFor+resync))
		}
	}
	return r
}

// add what is known of the Backup of the input.
func (r refusals) add(to *Backup, b *backup.Backup) {
	if b.Refused {
		e := r.events[types.UID(b.UID)]
		to.Refused = &e
	}
	if r.unknown != nil {
		to.RefusedUnknown = r.unknown.Error()
	}
}

// writeRefused says what the API server answered to the leader.
func (b *Backup) writeRefused(t *text) {
	if b.Refused != nil {
		t.line("The controller reported %s ago: %s.", age(t.now, b.Refused.Time), b.Refused.Message)
	}
	if b.RefusedUnknown != "" {
		t.line("Whether the API server refuses to change it is not known: %s.", b.RefusedUnknown)
	}
}
