package backup

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/reconcile"
)

// Refusals are the Backups that the API server did not change when it was asked to. They may be
// read from the Events of ReasonRefused.
type Refusals struct{ reconcile.Refusals }

// RefusedFor is how long a Backup that the API server refuses to change is left alone, unless
// it changes. An Event of the reason ReasonRefused tells of each try.
const RefusedFor = reconcile.RefusedFor

// refusalsPerRound bounds how many a round finds: where the API server refuses every write,
// few are tried.
const refusalsPerRound = 3

// lastingTimes is how often in a row a write fails before it counts as refused: from then on it
// is tried at intervals of RefusedFor.
const lastingTimes = 4

// Add the refusal of a Backup at a resource version.
func (r *Refusals) Add(uid types.UID, version string, until time.Time) {
	r.Refusals.Add(uid, number(versionOf(version)), until)
}

func number(version uint64) string { return strconv.FormatUint(version, 10) }

// key of a Backup at its version.
func key(b *Backup) (types.UID, string) { return types.UID(b.UID), number(b.Version) }

// hold tells whether nothing is to be written to a Backup.
func (r *Refusals) hold(b *Backup) bool { return !r.None() && r.Held(key(b)) }

// Mark the Backups of an input to which nothing is to be written. One that may have been let
// start, since the API server did not answer, takes its slot until that is known.
func (r *Refusals) Mark(in *Input) {
	r.Begin(in.Time)
	for i := range in.Backups {
		b := &in.Backups[i]
		if b.Refused = r.hold(b); !b.Refused || in.HandBack {
			continue
		}
		if _, unknown := r.Unknown(key(b)); unknown {
			b.Phase, b.ReadySince, b.Refused = Ready, in.Time, false
		}
	}
}
