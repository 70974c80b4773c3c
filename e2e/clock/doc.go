// Package clock sets the clock of one process and of no other, so that a test can
// step it where the machine's belongs to everybody.
//
// A program that is linked without libc, as those of Go are, reads the time by a
// function that the kernel maps into each process (vDSO, vdso(7)). [Start] replaces
// that function, in this process alone, by one that asks the kernel and adds an
// offset to CLOCK_REALTIME; [Clock.Set] writes the offset. The program itself is the
// one that was built. It is a STAND-IN for a machine's clock that is set: what the
// kernel stamps (files) and what other processes say (the API server) do not step
// with it, and CLOCK_MONOTONIC and CLOCK_BOOTTIME run on, as they do on a machine.
//
// # Usage
//
//	c, err := clock.Start(cmd) // in place of cmd.Start()
//	…
//	err = c.Set(-time.Hour)
//
// It needs the rights of a debugger over the process: root's, or its parent's where
// nothing forbids that.
package clock
