package matrix

import (
	"regexp"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

// Function is one of the product's, with the tests that show it.
type Function struct {
	// Name stands in the table, and names the function in records.
	Name string
	// Of is the program whose versions it is held against: [cluster.APIServer] or
	// [cluster.Velero].
	Of string
	// Dir is the directory of the tests, Tests are their names: a test, or a test
	// and a subtest.
	Dir   string
	Tests []string
}

// Functions in the order of the tables.
func Functions() []Function {
	return []Function{
		{"Heartbeats in the agent's own Lease", cluster.APIServer, "e2e", []string{"TestLeaseRenewedWithPressure"}},
		{"An agent's token writes its own node alone", cluster.APIServer, "deploy", []string{"TestStolenTokenOnOtherNode", "TestLeaseAnnotationWriters"}},
		{"Eviction through the API, past a PDB", cluster.APIServer, "e2e", []string{"TestEvictBlockedByPDBTakesNext"}},
		{"Conditions and taints", cluster.APIServer, "e2e", []string{"TestDryRunRemovesFormerMarks", "TestTaintKeptByNextAgent"}},
		{"Evictions that the controller approves", cluster.APIServer, "e2e", []string{"TestEvictThroughController/a_pod_goes_through_the_controller"}},
		{"The gate holds data mover loads, and releases them", cluster.APIServer, "deploy", []string{"TestGateAcceptNeedsTicket", "TestGateStartHoldNeedsTicket", "TestGateOnlyControllerWritesTickets"}},
		{"Waiting loads are hidden, and released without the controller", cluster.APIServer, "deploy", []string{"TestGateHidesLoad", "TestGateHandsBackHiddenLoad"}},
		{"Waiting loads are hidden, and released by a CronJob where the cluster cannot", cluster.APIServer, "e2e", []string{"TestLoadsWithoutMutatingPolicies"}},
		{"Pods of data movers are steered to calm nodes", cluster.APIServer, "deploy", []string{"TestGateMoverPodAffinity"}},
		{"The controller admits loads within the limit", cluster.APIServer, "e2e", []string{"TestLoadsOfDataMovers/are_never_more_prepared_than_may_be,_also_of_two_controllers"}},
		{"The Helm chart has what the cluster serves", cluster.APIServer, "e2e/chart", []string{"TestInstallByWhatIsServed/as_it_comes"}},
		{"The backup queue", cluster.Velero, "e2e", []string{"TestRealVeleroRunsQueue"}},
		{"Velero's own node-agents behind the gate", cluster.Velero, "e2e", []string{"TestLoadsOnNodeAgentsOfVersion"}},
		{"Maintenance of Velero's repositories", cluster.Velero, "e2e", []string{"TestMaintenance"}},
	}
}

// world tells whether a test is one of the function's, part of one, or has one as
// a part, whose world it makes.
func (f *Function) world(test string) bool {
	return f.has(test) || slices.ContainsFunc(f.Tests, func(own string) bool { return strings.HasPrefix(own, test+"/") })
}

// has tells whether a test is one of the function's, or is part of one.
func (f *Function) has(test string) bool {
	for _, own := range f.Tests {
		if test == own || strings.HasPrefix(test, own+"/") {
			return true
		}
	}
	return false
}

// pattern is what go test -run takes for some functions' tests.
func pattern(functions []Function) string {
	var all []string
	for _, f := range functions {
		for _, test := range f.Tests {
			all = append(all, "^"+strings.ReplaceAll(regexp.QuoteMeta(test), "/", "$/^")+"$")
		}
	}
	return strings.Join(all, "|")
}
