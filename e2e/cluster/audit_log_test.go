package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAuditPartialLine(t *testing.T) {
	line := `{"auditID":"a","verb":"get","responseStatus":{"code":200}}` + "\n"
	events, err := parseAudit([]byte(line + `{"auditID":"b","ver`))
	require.NoError(t, err)
	assert.Equal(t, []AuditEvent{{Verb: "get", Code: 200}}, events)

	events, err = parseAudit([]byte(line + `{"auditID":"a","verb":"get","responseStatus":{"code":504}}` + "\n"))
	require.NoError(t, err)
	assert.Equal(t, []AuditEvent{{Verb: "get", Code: 504}}, events, "said at its start and at its end")

	_, err = parseAudit([]byte("no JSON\n"))
	require.Error(t, err)
}
