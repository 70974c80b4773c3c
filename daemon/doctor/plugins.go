package doctor

import (
	"fmt"
	"os"

	"github.com/plimsoll-dev/plimsoll/plugins/outer"
)

// plugins says who would be asked. The agent makes the directory that nobody
// names.
func (p Patient) plugins() []Row {
	const check = "outer plugins"
	if rival := outer.Rival(p.Paths.Procfs, p.PluginDirs); rival != "" {
		return []Row{{Fail, check, rival + ": some answers come once only, so the agent registers none of them; stop one of the two"}}
	}
	var rows []Row
	for _, dir := range p.PluginDirs {
		info, err := os.Stat(dir)
		switch {
		case err != nil || !info.IsDir():
			rows = append(rows, Row{Pass, check, dir + " is not there: none is found in it until it is"})
		case info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0:
			rows = append(rows, Row{Warn, check, fmt.Sprintf("%s may be written by others than its owner (%s): who may make a socket there may take away that of another; chmod go-w", dir, info.Mode().Perm())})
		default:
			rows = append(rows, Row{Pass, check, "looked for in " + dir})
		}
	}
	return rows
}
