package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// permissionNotes tells what an agent without root cannot read. Access to the root
// directory of pid 1 means access to all processes (CAP_SYS_PTRACE).
func permissionNotes(procfs string) []string {
	if os.Geteuid() == 0 {
		return nil
	}
	if _, err := os.Readlink(filepath.Join(procfs, "1/root")); err == nil {
		return nil
	}
	list := []string{"not root: values that this user may not read are absent, with the reason"}
	f, err := os.Open(filepath.Join(procfs, "1/net/dev"))
	if errors.Is(err, fs.ErrPermission) {
		return append(list, "cannot read /proc/1: network devices are those of the agent's own network namespace")
	}
	if err == nil {
		_ = f.Close() // opened only to check the permission
	}
	return list
}
