package process

import (
	"log/slog"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
)

// SetLevel makes a running log as verbose as configured.
func SetLevel(level *slog.LevelVar, c config.Log) {
	var l slog.Level
	if l.UnmarshalText([]byte(c.Level)) == nil { // the configuration is validated
		level.Set(l)
	}
}
