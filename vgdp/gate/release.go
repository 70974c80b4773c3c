package gate

import "time"

// ReleaseHidden is the name of what releases hidden loads that no controller holds any
// more: an admission policy (deploy/gate-mutating.yaml) or, where the cluster has no such
// policies, a CronJob (deploy/release-hidden.yaml).
const ReleaseHidden = "plimsoll-release-hidden"

// ReleasePeriod is how often the CronJob runs; its schedule says the same.
const ReleasePeriod = 5 * time.Minute
