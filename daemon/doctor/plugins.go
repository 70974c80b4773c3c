package doctor

import (
	"fmt"
	"os"

	"github.com/plimsoll-dev/plimsoll/plugins/outer"
)

// plugins checks the directories that are searched. The agent creates the
// default one.
func (p Examination) plugins() []Row {
	const check = "outer plugins"
	if rival := outer.FindOtherHost(p.Paths.Procfs, p.PluginDirs); rival != "" {
		return []Row{{Fail, check, rival + ": plugins give some answers only once, so the agent registers no plugin; stop one of the two"}}
	}
	var rows []Row
	for _, dir := range p.PluginDirs {
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
