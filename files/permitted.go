package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bits of a mode, for owner, group and others alike.
const (
	bitRead   = 0o444
	bitWrite  = 0o222
	bitSearch = 0o111
)

// Permitted tells, where an error is that of a file which this process may not
// use, which user and group may, and which user this process is; nil for other
// errors.
func Permitted(err error) []string {
	at, is := errors.AsType[*fs.PathError](err)
	if !is || !errors.Is(at.Err, fs.ErrPermission) {
		return nil
	}
	path, bit := refusing(at.Path, bitOf(at.Op))
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	who := userName(owner.Uid)
	if info.Mode().Perm()&bit&0o070 != 0 {
		who += " and the members of group " + groupName(owner.Gid)
	}
	return []string{fmt.Sprintf("%s: open to %s; this is %s: use sudo, or become one of these", path, who, userName(uint32(os.Geteuid())))} //nolint:gosec // a uid has 32 bits
}

// bitOf an operation, as a PathError names it.
func bitOf(op string) fs.FileMode {
	switch op {
	case "connect", "mkdir", "create":
		return bitWrite
	}
	return bitRead
}

// refusing is the first directory on the way to a path that may not be searched,
// or else the path.
func refusing(path string, bit fs.FileMode) (string, fs.FileMode) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path, bit
	}
	dir := "/"
	for part := range strings.SplitSeq(strings.Trim(filepath.Dir(abs), "/"), "/") {
		dir = filepath.Join(dir, part)
		if errors.Is(unix.Access(dir, unix.X_OK), unix.EACCES) {
			return dir, bitSearch
		}
	}
	return abs, bit
}

func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return "user " + u.Username
	}
	return "user " + id
}

func groupName(gid uint32) string {
	id := strconv.FormatUint(uint64(gid), 10)
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name
	}
	return id
}
