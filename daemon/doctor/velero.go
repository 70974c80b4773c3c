package doctor

import (
	"context"
	"log/slog"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/abilities"
	"github.com/plimsoll-dev/plimsoll/capability"
)

// installedVelero tells what the installed Velero lacks. Where the caller may not read its
// CustomResourceDefinitions, or there is none, there is no row.
func installedVelero(ctx context.Context, how *rest.Config) []Row {
	client, err := dynamic.NewForConfig(how)
	if err != nil {
		return nil // reported by the row of the API server
	}
	r := &abilities.Reader{Definitions: client.Resource(abilities.Resource()), Log: slog.New(slog.DiscardHandler)}
	return veleroRows(r.Now(ctx))
}

func veleroRows(v abilities.Velero) (rows []Row) {
	const check = "velero"
	if v.Unread != "" {
		return nil
	}
	for _, c := range capability.Lacking(v.Capabilities()) {
		rows = append(rows, Row{Warn, check, c.String()})
	}
	if len(rows) == 0 {
		rows = []Row{{Pass, check, "PodVolumeBackups can be held and Backups be queued (Velero 1.18 or later)"}}
	}
	return rows
}
