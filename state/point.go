//go:build !plimsollkill

package state

// point marks where a program may be killed while it writes; only a program
// that is built for tests (tag plimsollkill) looks at it.
func point() {}
