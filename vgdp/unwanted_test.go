package vgdp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// withoutWanted is the digest of what was decided about these worlds before anything was
// wanted of Backups.
const withoutWanted = "4596006d599194189fe6b2fbca17d1618dc75584220cbcc1f4ab807ecdbade21"

// decisionText is all of a decision and of its notes.
func decisionText(in Input) string {
	d := Decide(in)
	text := fmt.Sprintln(d.Limited, d.Holds)
	for _, grants := range [][]Grant{d.Admit, d.Start} {
		for _, g := range grants {
			text += fmt.Sprintln(g.UID, g.Ticket, g.Overdue)
		}
		text += "\n"
	}
	for _, r := range d.Revoke {
		text += fmt.Sprintln(r.UID, r.Start, r.Why)
	}
	for _, l := range d.Release {
		text += fmt.Sprintln(l.UID)
	}
	for _, w := range d.Waiting {
		text += fmt.Sprintln(w.UID, w.Wait.Code, w.Wait.BlockedBy(), w.Wait.Sentence(), w.Wait.Since, w.Wait.Until)
	}
	for _, n := range d.Notes(in.Time) {
		text += fmt.Sprintln(n.UID, n.Note.Reason, n.Note.Since, n.Note.BlockedBy, n.Note.PressureSince, n.Note.Unused, n.Note.UnusedAt)
	}
	return text
}

// Where nothing is wanted of any Backup, decisions are as before, bit by bit.
func TestWantedUnsetChangesNothing(t *testing.T) {
	digest := sha256.New()
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 3))
		in := someWorld(r, r.IntN(40))
		text := decisionText(in)
		fmt.Fprint(digest, strings.ReplaceAll(text, string(CodeLeader), string(CodeLimit))) // which was told as the other then
		for i := range in.Loads {                                                           // their windows are open
			in.Loads[i].Wanted = Wanted{PostponedUntil: noon}
		}
		require.Equal(t, text, decisionText(in), "seed %d", seed)
	}
	assert.Equal(t, withoutWanted, hex.EncodeToString(digest.Sum(nil)))
}
