// Package peers has the rules by which other programs judge pressure, each as small
// as its documentation allows, with its source and version. None is copied: each is
// written from its documentation.
//
// A rule that needs what a recording does not have says so and judges nothing: a
// figure that is made up would be worse than none.
//
// # Usage
//
// Rules lists them; KEP5394 is one with a threshold, to be swept.
package peers

import "github.com/plimsoll-dev/plimsoll/judgement"

// Rules of all peers, each with its defaults.
func Rules() []judgement.Rule {
	return []judgement.Rule{
		naive(), KEP5394(kepPercent, Full), systemd(), desktop(), earlyOOM(), memoryAvailable(), realKubelet(), talosWholeNode(), talosRule(),
	}
}
