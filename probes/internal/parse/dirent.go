package parse

import (
	"bytes"
	"encoding/binary"
)

// Dirent parses the first entry of a buffer of getdents64(2): its name, which points into
// the buffer, and its type.
func Dirent(b []byte) (name []byte, kind byte, rest []byte) {
	const length, typeAt, nameAt = 16, 18, 19 // offsets in struct linux_dirent64
	size := int(binary.NativeEndian.Uint16(b[length:]))
	name, _, _ = bytes.Cut(b[nameAt:size], []byte{0})
	return name, b[typeAt], b[size:]
}

// DirentInode is the inode of the first entry.
func DirentInode(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }
