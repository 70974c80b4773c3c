package vgdp

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

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

// Where nothing is wanted of any Backup, decisions are those of open windows.
func TestWantedUnsetChangesNothing(t *testing.T) {
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 3))
		in := someWorld(r, r.IntN(40))
		text := decisionText(in)
		for i := range in.Loads { // their windows are open
			in.Loads[i].Wanted = Wanted{PostponedUntil: noon}
		}
		require.Equal(t, text, decisionText(in), "seed %d", seed)
	}
}
