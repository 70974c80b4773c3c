package backup

import (
	"slices"
	"strings"
	"time"
)

// Servers selects the Deployments of Velero's servers by the label that Velero's installer
// and its chart put on them.
const Servers = "component=velero"

// HandedOver reports whether a Velero server with these arguments leaves its queue to
// another program. Each --disable-controllers adds to the ones before it.
func HandedOver(args []string) bool {
	for i, a := range args {
		list, is := strings.CutPrefix(a, "--disable-controllers=")
		if a == "--disable-controllers" && i+1 < len(args) {
			list, is = args[i+1], true
		}
		if is && slices.Contains(strings.Split(list, ","), "backup-queue") {
			return true
		}
	}
	return false
}

// ReleasePatch is the JSON merge patch that removes the controller's annotation
// from a Backup; nil: it has none. A ReadyToStart Backup that Velero did not take
// up is requeued: a server that has just started ignores it. Positions stay, since
// they are the order.
func ReleasePatch(o *Object, now time.Time) (body []byte, returned bool, err error) {
	if !o.Annotated {
		return nil, false, nil
	}
	p := patch{waiting: &Waiting{}}
	since := o.Backup.ReadySince
	if returned = o.Backup.Phase == Ready && !since.IsZero() && now.Sub(since) >= requeueAfter; returned {
		p.phase = Queued
	}
	body, err = p.body(o.ResourceVersion)
	return body, returned, err
}
