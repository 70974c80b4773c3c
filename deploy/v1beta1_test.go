package deploy

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The policies for an older API are those for the newer one.
func TestOlderPolicies(t *testing.T) {
	const file, version = "gate-mutating-v1beta1.yaml", "apiVersion: admissionregistration.k8s.io/v1"
	_, begin, found := strings.Cut(string(GateMutating), version)
	require.True(t, found)
	text := "# Code generated from gate-mutating.yaml by go test ./deploy -update. DO NOT EDIT.\n" +
		"# For Kubernetes 1.34 and 1.35 whose API servers run with\n" +
		"# --feature-gates=MutatingAdmissionPolicy=true and\n" +
		"# --runtime-config=admissionregistration.k8s.io/v1beta1=true. What it does: gate-mutating.yaml.\n" +
		strings.ReplaceAll(version+begin, version+"\n", version+"beta1\n")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	have, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(string(have), text), "go test ./deploy -run TestOlderPolicies -update writes it")
	assert.Equal(t, 6, strings.Count(text, version+"beta1\n"))
}
