package doctor

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/plimsoll-dev/plimsoll/plugins/outer"
)

// isPlimsoll reports whether a process runs this program: the agent watches the plugin
// directories, too.
func isPlimsoll(process string) bool {
	own, err := os.Stat("/proc/self/exe")
	if err != nil {
		return false
	}
	its, err := os.Stat(filepath.Join(process, "exe"))
	return err == nil && os.SameFile(own, its)
}

// pluginDirs checks the directories that are searched. The agent creates the
// default one.
func pluginDirs(procfs string, dirs []string) []Row {
	const check = "outer plugins"
	var rows []Row
	for _, r := range outer.FindRivals(procfs, dirs, isPlimsoll) {
		rows = append(rows, Row{Warn, check, r.String() + ": plugins give some answers only once; stop one of the two hosts, or set plugins.beside"})
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		switch {
		case err != nil || !info.IsDir():
			rows = append(rows, Row{Pass, check, dir + " does not exist yet: no plugin found in it"})
		case info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0:
			rows = append(rows, Row{Warn, check, fmt.Sprintf("%s is writable for other users (%s), who can replace the socket of a plugin: chmod go-w", dir, info.Mode().Perm())})
		default:
			rows = append(rows, Row{Pass, check, "searched in " + dir})
		}
	}
	return rows
}
