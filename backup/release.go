package backup

import "time"

// ReleasePatch is the JSON merge patch that takes our mark off a Backup, for
// whoever cleans up after a controller; nil: it has none. One that was let start
// and that Velero did not take up goes back into the queue: a server that has
// just started never looks at it. Positions stay as they are, for they are the
// order.
func ReleasePatch(o *Object, now time.Time) (body []byte, returned bool, err error) {
	if !o.Marked {
		return nil, false, nil
	}
	p := patch{waiting: &Waiting{}}
	since := o.Backup.ReadySince
	if returned = o.Backup.Phase == Ready && !since.IsZero() && now.Sub(since) >= givenBack; returned {
		p.phase = Queued
	}
	body, err = p.body(o.ResourceVersion)
	return body, returned, err
}
