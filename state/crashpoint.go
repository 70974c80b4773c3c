//go:build !plimsollkill

package state

// crashPoint marks a crash point of the write path; only a program built for tests (tag
// plimsollkill) uses it.
func crashPoint() {}
