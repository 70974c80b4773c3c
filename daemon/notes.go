package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// notes says once what an agent that is not root does not see.
func notes(procfs string) []string {
	if os.Geteuid() == 0 {
		return nil
	}
	list := []string{"not root: what this user may not read is absent, with its reason"}
	f, err := os.Open(filepath.Join(procfs, "1/net/dev"))
	switch {
	case errors.Is(err, fs.ErrPermission):
		list = append(list, "pid 1 may not be looked at: network devices are those of the agent's own network namespace")
	case err == nil:
		_ = f.Close() // opened to see whether it can be
	}
	return list
}
