package backup

import "time"

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
