package backup

import (
	"errors"
	"maps"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// Refusals are the Backups that the API server refuses to change, by UID. Nothing is written
// to them for a while, so that others go on. They may be read from the Events of ReasonRefused.
type Refusals map[string]refusal

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

// Add the refusal of a Backup at a resource version.
func (r Refusals) Add(uid types.UID, version string, until time.Time) {
	r[string(uid)] = refusal{versionOf(version), until}
}

// hold tells whether nothing is to be written to a Backup.
func (r Refusals) hold(b *Backup) bool {
	of, there := r[b.UID]
	return there && of.version == b.Version
}

// Mark the Backups of an input to which nothing is to be written.
func (r Refusals) Mark(in *Input) {
	maps.DeleteFunc(r, func(_ string, of refusal) bool { return !in.Time.Before(of.until) })
	for i := range in.Backups {
		in.Backups[i].Refused = r.hold(&in.Backups[i])
	}
}
