package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/daemon/gantt"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/web"
)

func backupsCommand() *cobra.Command {
	var f clusterFlags
	var output string
	c := &cobra.Command{
		Use:   "backups",
		Short: "Show when the Backups of the night will be complete, and which will be late",
		Long: "Show when Velero's Backups that run, wait and are to come will be complete, as a plot, and which will miss their\n" +
			"deadlines, why, and what would help. Hours are by the clocks of this machine (TZ). Asks the leading controller\n" +
			"through the API server; it forecasts once a minute where its configuration has deadlines enabled.",
		Example: `  plimsoll backups
  plimsoll backups -n velero -o wide
  TZ=Europe/Berlin plimsoll backups`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkOutput(output, asWide); err != nil {
				return err
			}
			b, err := f.backups(c)
			if err != nil {
				return err
			}
			if isObject(output) {
				return writeObject(c.OutOrStdout(), output, b)
			}
			return writeNights(c.OutOrStdout(), &b, output == asWide)
		},
	}
	f.add(c)
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "", "only those of the Velero in the `NAMESPACE`")
	outputFlag(c, &output, asWide)
	return c
}

// backups as the leading controller reports them.
func (f *clusterFlags) backups(c *cobra.Command) (web.Backups, error) {
	cluster, err := f.open(c)
	if err != nil {
		return web.Backups{}, err
	}
	controller, err := cluster.LeadingController(c.Context(), askTimeout)
	if err != nil {
		return web.Backups{}, clusterError(c, err)
	}
	b, err := controller.Backups(c.Context())
	if err == nil {
		err = forecasts(&b)
	}
	if err == nil && f.namespace != "" {
		err = onlyOf(&b, f.namespace)
	}
	return b, clusterError(c, err)
}

// Why a controller has no forecast.
var (
	errStandby      = errors.New("the controller that was asked is on standby: another replica leads since a moment ago; ask again")
	errQueueOff     = errors.New("the controller does not run the backup queue (backups.enabled: false, or a Velero older than 1.18): Velero starts Backups itself if its server runs without --disable-controllers=backup-queue, else none starts; set backups.enabled: true in its configuration, and hand the queue over (docs/backups.md)")
	errDeadlinesOff = errors.New("the controller forecasts nothing, since deadlines are disabled: set backups.deadlines.enabled: true in its configuration (docs/backups.md)")
)

func forecasts(b *web.Backups) error {
	switch {
	case !b.Leads:
		return errStandby
	case !b.Enabled:
		return errQueueOff
	case !b.Deadlines:
		return errDeadlinesOff
	}
	return nil
}

// onlyOf keeps what is of one Velero.
func onlyOf(b *web.Backups, namespace string) error {
	var there []string
	for i := range b.Nights {
		there = append(there, b.Nights[i].Namespace)
	}
	if !slices.Contains(there, namespace) {
		return fmt.Errorf("the controller knows no Velero in namespace %q; it knows: %s", namespace, dash(view.Printable(strings.Join(there, ", "))))
	}
	b.Nights = slices.DeleteFunc(b.Nights, func(n backup.Night) bool { return n.Namespace != namespace })
	b.Queues = slices.DeleteFunc(b.Queues, func(r backup.Report) bool { return r.Namespace != namespace })
	return nil
}

func writeNights(out io.Writer, b *web.Backups, wide bool) error {
	if len(b.Nights) == 0 {
		_, err := fmt.Fprintln(out, "Nothing is forecast yet: no Backup or Schedule of a Velero is known.")
		return err
	}
	width, _ := size(out)
	text := gantt.Text{Width: width, Now: b.Now, Zone: time.Local, ASCII: !utf8Locale(), Schedules: wide}
	for i := range b.Nights {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := text.Write(out, &b.Nights[i]); err != nil {
			return err
		}
	}
	return nil
}

// utf8Locale tells whether the user's locale has UTF-8 (locale(7)).
func utf8Locale() bool {
	for _, key := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := strings.ToLower(os.Getenv(key)); locale != "" {
			return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
		}
	}
	return false
}
