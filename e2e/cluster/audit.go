package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"
)

// AuditNamespace is the one whose service accounts' requests Options.Audit records.
const AuditNamespace = "plimsoll-system"

// AuditEvent is one request, as an API server recorded it.
type AuditEvent struct {
	Time                                          time.Time // when it was received
	User, Verb                                    string    // Verb: get, list, watch, create, update, patch, delete
	Group, Resource, Subresource, Namespace, Name string    // as far as they are known
	URI, UserAgent                                string
	Code                                          int // HTTP status
}

// auditLogs are what the API servers of a control plane record for Options.Audit.
type auditLogs struct {
	place place
	users []string // Options.AuditUsers
}

// args of API server i, and the policy they name.
func (a auditLogs) args(i int) ([]string, error) {
	rules := []map[string]any{{"level": "Metadata", "userGroups": []string{"system:serviceaccounts:" + AuditNamespace}}}
	if len(a.users) > 0 {
		rules = append(rules, map[string]any{"level": "Metadata", "users": a.users})
	}
	policy, err := json.Marshal(map[string]any{
		"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": []string{"RequestReceived"},
		"rules": append(rules, map[string]any{"level": "None"}),
	})
	if err != nil {
		return nil, fmt.Errorf("audit policy: %w", err)
	}
	if err := os.WriteFile(a.place.file("audit-policy.yaml"), policy, 0o600); err != nil {
		return nil, fmt.Errorf("audit policy: %w", err)
	}
	return []string{"--audit-policy-file=" + a.place.file("audit-policy.yaml"), "--audit-log-path=" + a.file(i)}, nil
}

// file of API server i.
func (a auditLogs) file(i int) string { return a.place.file("audit-" + strconv.Itoa(i) + ".log") }

// events of the logs of these API servers, in the order of their time.
func (a auditLogs) events(servers []*Process) ([]AuditEvent, error) {
	var all []AuditEvent
	for i := range servers {
		log, err := os.ReadFile(a.file(i))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // nothing was asked yet
			return nil, fmt.Errorf("audit log: %w", err)
		}
		events, err := parseAudit(log)
		if err != nil {
			return nil, fmt.Errorf("audit log of %s: %w", servers[i].Name(), err)
		}
		all = append(all, events...)
	}
	slices.SortStableFunc(all, func(a, b AuditEvent) int { return a.Time.Compare(b.Time) })
	return all, nil
}

// parseAudit reads a log to which a line may be being added.
func parseAudit(log []byte) ([]AuditEvent, error) {
	var all []AuditEvent
	seen := map[string]int{} // place in all; a watch is recorded when it starts and when it ends
	for line := range bytes.Lines(log) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var e struct {
			AuditID, Verb, RequestURI, UserAgent string
			RequestReceivedTimestamp             time.Time
			User                                 struct{ Username string }
			ObjectRef                            struct{ APIGroup, Resource, Subresource, Namespace, Name string }
			ResponseStatus                       struct{ Code int }
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		event := AuditEvent{
			Time: e.RequestReceivedTimestamp, User: e.User.Username, Verb: e.Verb,
			Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource,
			Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
			URI: e.RequestURI, UserAgent: e.UserAgent, Code: e.ResponseStatus.Code,
		}
		if at, ok := seen[e.AuditID]; ok {
			all[at] = event
			continue
		}
		seen[e.AuditID] = len(all)
		all = append(all, event)
	}
	return all, nil
}
