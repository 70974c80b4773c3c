// Package cli is the plimsoll program: its commands and flags.
package cli
