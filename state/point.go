//go:build !plimsollkill

package state

// point marks a crash point of the write path; only a program built for tests (tag
// plimsollkill) uses it.
func point() {}
