package backup

import (
	"errors"
	"maps"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// refusals are the Backups that the API server refuses to change, by UID. Nothing is written
// to them for a while, so that others go on.
type refusals map[string]refusal

type refusal struct {
	version uint64    // of the Backup that was refused
	until   time.Time // nothing is written to it, unless it has another version
}

// RefusedFor is how long a Backup that the API server refuses to change is left alone, unless
// it changes. An Event of the reason ReasonRefused tells of each try.
const RefusedFor = 5 * time.Minute

// refusalsPerRound bounds how many a round finds: where the API server refuses every write,
// few are tried.
const refusalsPerRound = 3

// refused tells whether the API server refuses this change of this object: not where the server
// is away or overloaded, or does not know the client.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// hold tells whether nothing is to be written to a Backup.
func (r refusals) hold(b *Backup) bool {
	of, there := r[b.UID]
	return there && of.version == b.Version
}

// mark the Backups of an input to which nothing is to be written.
func (r refusals) mark(in *Input) {
	maps.DeleteFunc(r, func(_ string, of refusal) bool { return !in.Time.Before(of.until) })
	for i := range in.Backups {
		in.Backups[i].Refused = r.hold(&in.Backups[i])
	}
}
