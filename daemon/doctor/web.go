package doctor

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/guard"
)

// webConfig examines how clients are authenticated, as a starting server does.
// The right to review tokens is checked with the other rights.
func (p Examination) webConfig(now time.Time) []Row {
	const check = "web configuration"
	switch {
	case p.TokenReview && p.Cluster == nil && p.ClusterErr == nil:
		return []Row{{Fail, check, "web.tokenReview needs an API server: without a cluster the agent does not start"}}
	case p.WebConfig == "" && !p.TokenReview:
		return []Row{{Pass, check, "none: clients are not authenticated"}}
	case p.WebConfig == "":
		return []Row{{Pass, check, "none; clients need a token of the cluster"}}
	}
	f, err := guard.Examine(p.WebConfig)
	if err != nil {
		return []Row{{Fail, check, oneLine(err) + ": the agent does not start, and a running one refuses every client"}}
	}
	rows := []Row{{Pass, check, p.WebConfig + ": " + strings.Join(p.authMethods(f), ", ")}}
	if loose := filePermissionWarnings(f); len(loose) > 0 {
		rows[0] = Row{Warn, check, strings.Join(loose, "; ")}
	}
	if f.Certificate != nil {
		rows = append(rows, certificateRow(f.Certificate.NotBefore, f.Certificate.NotAfter, now))
	}
	return rows
}

// authMethods is what clients need to authenticate.
func (p Examination) authMethods(f guard.WebConfigFacts) []string {
	var list []string
	if f.Certificate != nil {
		list = append(list, "TLS")
	}
	if f.Clients != "" {
		list = append(list, f.Clients)
	}
	if f.Users > 0 {
		list = append(list, counted(fmt.Sprint(f.Users), "password"))
	}
	if p.TokenReview {
		list = append(list, "tokens of the cluster")
	}
	if len(list) == 0 {
		list = append(list, "clients are not authenticated")
	}
	return list
}

// filePermissionWarnings are warnings about files: secrets that every user may read, and files
// that others than the owner may change.
func filePermissionWarnings(f guard.WebConfigFacts) []string {
	var list []string
	for _, file := range f.Files {
		info, err := os.Stat(file)
		if err != nil {
			continue // it was readable a moment ago
		}
		mode := info.Mode().Perm()
		if mode&0o004 != 0 && slices.Contains(f.Secrets, file) {
			list = append(list, fmt.Sprintf("every user may read the secrets in %s (%s): chmod o-r", file, mode))
		}
		if mode&0o022 != 0 {
			list = append(list, fmt.Sprintf("%s is writable for other users (%s): chmod go-w", file, mode))
		}
	}
	return list
}

// renewalDueFraction is the last part of a certificate's life, 1/10, in which its
// renewal is late: most are renewed with a third left.
const renewalDueFraction = 10

func certificateRow(from, until, now time.Time) Row {
	const check = "web certificate"
	when := until.UTC().Format(time.RFC3339)
	switch {
	case now.After(until):
		return Row{Fail, check, "expired at " + when + ": no client accepts it; a renewed one is served from the next connection on"}
	case now.Before(from):
		return Row{Fail, check, "valid only from " + from.UTC().Format(time.RFC3339) + ": no client accepts it; check this host's clock"}
	case until.Sub(now) < until.Sub(from)/renewalDueFraction:
		return Row{Warn, check, "expires at " + when + ", in " + until.Sub(now).Round(time.Second).String() + ": renew it"}
	}
	return Row{Pass, check, "valid until " + when}
}
