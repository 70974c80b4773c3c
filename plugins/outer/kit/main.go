package kit

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/plimsoll-dev/plimsoll/files"
)

// Main is the whole program of a plugin. It has three flags (--plugins.dir,
// --token-file and --name) beside those that the plugin added to package flag's
// set, logs to stderr, and ends on SIGINT or SIGTERM with status 0, after an
// error with 1, and after wrong usage with 2.
func Main(name string, p Plugin) {
	s := &Server{Plugin: p, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flag.StringVar(&s.Name, "name", name, "the plugin's name")
	flag.StringVar(&s.Dir, "plugins.dir", "/var/lib/plimsoll/plugins", "directory of the socket: one that the agent watches, or a subdirectory of it")
	tokenFile := flag.String("token-file", "", "file with this plugin's token, if the agent requires one")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "%s: unexpected argument %q; see --help\n", name, flag.Arg(0))
		os.Exit(2)
	}
	if err := s.main(*tokenFile); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// maxToken bounds a token file.
const maxToken = 64 << 10

func (s *Server) main(tokenFile string) error {
	if tokenFile != "" {
		token, err := files.Read(tokenFile, maxToken)
		if err != nil {
			return err
		}
		s.Token = strings.TrimSpace(string(token))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return s.Run(ctx)
}
