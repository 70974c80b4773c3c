package chart_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/chart"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

// releasing is the policy that releases hidden loads.
const releasing = "MutatingAdmissionPolicy.admissionregistration.k8s.io /plimsoll-release-hidden"

// The chart has what the cluster serves, and every object of it can be made. The newest API
// servers serve here what older ones do; make matrix installs it on those. That v1beta1 has
// an effect is shown by deploy's TestGateHidesLoad on Kubernetes 1.34 and 1.35.
func TestInstallByWhatIsServed(t *testing.T) {
	if os.Getenv("PLIMSOLL_K8S") == "" { // make matrix asks for one
		live.Long(t, "three control planes of its own")
	}
	const of = "admissionregistration.k8s.io/"
	const withoutV1 = of + "v1/mutatingadmissionpolicies=false," + of + "v1/mutatingadmissionpolicybindings=false"
	const policy, job = releasing, "CronJob.batch plimsoll-system/plimsoll-release-hidden"
	for name, flags := range map[string][]string{
		"as it comes":          nil,
		"no mutating policies": {"--feature-gates=MutatingAdmissionPolicy=false", "--runtime-config=" + withoutV1},
		"v1beta1 alone":        {"--feature-gates=MutatingAdmissionPolicy=false", "--runtime-config=" + withoutV1 + "," + of + "v1beta1=true"},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster.New(t, cluster.Options{
				Without: []string{cluster.ControllerManager, cluster.Scheduler},
				Args:    map[string][]string{cluster.APIServer: flags},
			})
			serves := func(manifest []byte) bool {
				served, err := c.Serves(manifest)
				require.NoError(t, err)
				return served
			}
			want, version, not := job, "batch/v1", policy
			switch {
			case name == "no mutating policies":
			case name == "as it comes" && serves(deploy.GateMutating):
				want, version, not = policy, of+"v1", job
			case name == "v1beta1 alone" && !serves(deploy.GateMutatingV1beta1):
				t.Skip("this Kubernetes has no MutatingAdmissionPolicy v1beta1")
			case name == "v1beta1 alone":
				want, version, not = policy, of+"v1beta1", job
			}
			h := chart.NewHelm(t, c.Kubeconfig)
			h.Run("install", "plimsoll", chart.Dir, "--create-namespace", "--set", "controller.config.vgdp.enabled=true")
			installed, there := chart.Objects(t, h.Run("get", "manifest", "plimsoll")), chart.All(t, c.Admin)
			for _, o := range installed {
				require.Contains(t, there, chart.NameOf(o))
			}
			assert.Equal(t, version, named(t, installed, want).GetAPIVersion())
			assert.NotContains(t, there, not)
			h.Run("upgrade", "plimsoll", chart.Dir, "--reset-then-reuse-values", "--set", "controller.config.vgdp.enabled=false")
			assert.Contains(t, chart.All(t, c.Admin), want, "what is hidden is still released")
		})
	}
}
