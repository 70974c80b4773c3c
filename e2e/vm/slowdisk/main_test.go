package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBytesOf(t *testing.T) {
	text := "253:16 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=7 dios=1\n253:160 rbytes=1 wbytes=1 rios=1 wios=1 dbytes=0 dios=0\n"
	assert.EqualValues(t, 12288, bytesOf(text, "253:16"))
	assert.EqualValues(t, 2, bytesOf(text, "253:160"))
	assert.Zero(t, bytesOf(text, "8:0"))
	assert.Zero(t, bytesOf("253:16 \n", "253:16"), "an empty line, as the kernel writes for a device without IO")
}
