// This module pins the Prometheus Operator, of which tests read the kinds.
module github.com/plimsoll-dev/plimsoll/e2e/tools/operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
