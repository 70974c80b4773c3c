//go:build !race

package vgdp

const race = false
