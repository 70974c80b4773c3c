//go:build race

package vgdp

// race: the detector makes all several times as slow, and clusters smaller.
const race = true
