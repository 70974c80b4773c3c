package explain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/reconcile"
)

// refusals are the newest Events that say that the API server refuses to change a Backup, by
// its UID. Only the leader tries to write: without its Events they are not known.
type refusals struct {
	events  map[string]Event
	unknown error // why the Events cannot be read
}

// readRefusals reads the controller's Events about the Backups of a Velero.
func readRefusals(ctx context.Context, from corev1client.EventsGetter, namespace string) refusals {
	ours := fields.AndSelectors(
		fields.OneTermEqualSelector("involvedObject.kind", "Backup"),
		fields.OneTermEqualSelector("reason", backup.ReasonRefused),
		fields.OneTermEqualSelector("source", reconcile.FieldManager),
	)
	list, err := from.Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: ours.String()})
	if err != nil {
		return refusals{unknown: fmt.Errorf("list events: %w", err)}
	}
	return newRefusals(list.Items)
}

func newRefusals(list []corev1.Event) refusals {
	r := refusals{events: map[string]Event{}}
	for i := range list {
		uid, e := string(list[i].InvolvedObject.UID), newEvent(&list[i])
		if e.Time.After(r.events[uid].Time) {
			r.events[uid] = e
		}
	}
	return r
}

// mark the Backups of an input to which the leader writes nothing since it was refused: until
// its first round after backup.RefusedFor.
func (r refusals) mark(in *backup.Input, resync time.Duration) {
	for i := range in.Backups {
		b := &in.Backups[i]
		e, there := r.events[b.UID]
		b.Refused = there && in.Time.Sub(e.Time) < backup.RefusedFor+resync
	}
}

// add what is known of the Backup of the input.
func (r refusals) add(to *Backup, b *backup.Backup) {
	if b.Refused {
		e := r.events[b.UID]
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
