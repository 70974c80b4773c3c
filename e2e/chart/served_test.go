package chart_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/chart"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

// The chart has what the cluster serves, and every object of it can be made. The API
// servers are of Kubernetes 1.37 and serve what older ones do; that v1beta1 has an effect
// is not shown here.
func TestInstallByWhatIsServed(t *testing.T) {
	const of = "admissionregistration.k8s.io/"
	const withoutV1 = of + "v1/mutatingadmissionpolicies=false," + of + "v1/mutatingadmissionpolicybindings=false"
	const policy, job = "MutatingAdmissionPolicy.admissionregistration.k8s.io /plimsoll-release-hidden", "CronJob.batch plimsoll-system/plimsoll-release-hidden"
	for name, row := range map[string]struct {
		serves, want, version, not string
	}{
		"no mutating policies": {withoutV1, job, "batch/v1", policy},
		"v1beta1 alone":        {withoutV1 + "," + of + "v1beta1=true", policy, of + "v1beta1", job},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster.New(t, cluster.Options{
				Without: []string{cluster.ControllerManager, cluster.Scheduler},
				Args:    map[string][]string{cluster.APIServer: {"--feature-gates=MutatingAdmissionPolicy=false", "--runtime-config=" + row.serves}},
			})
			h := chart.NewHelm(t, c.Kubeconfig)
			h.Run("install", "plimsoll", chart.Dir, "--create-namespace", "--set", "controller.config.vgdp.enabled=true")
			installed, there := chart.Objects(t, h.Run("get", "manifest", "plimsoll")), chart.All(t, c.Admin)
			for _, o := range installed {
				require.Contains(t, there, chart.NameOf(o))
			}
			assert.Equal(t, row.version, named(t, installed, row.want).GetAPIVersion())
			assert.NotContains(t, there, row.not)
			h.Run("upgrade", "plimsoll", chart.Dir, "--reset-then-reuse-values", "--set", "controller.config.vgdp.enabled=false")
			assert.NotContains(t, chart.All(t, c.Admin), job, "nothing is held")
		})
	}
}
