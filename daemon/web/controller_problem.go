package web

import "time"

// APIProblem keeps the controller from working: it cannot reach the API server, or is
// refused what it needs.
type APIProblem struct {
	Kind  APIProblemKind
	Since time.Time
	// Cause is the newest error, in the words of the API server or of the network.
	Cause string
}

// APIProblemKind is a label of plimsoll_api_server_problem.
type APIProblemKind string

// The kinds of problems.
const (
	APIUnreachable     APIProblemKind = "unreachable"
	APIUnauthenticated APIProblemKind = "unauthenticated"
	APINamespace       APIProblemKind = "no-namespace"
	APIForbidden       APIProblemKind = "forbidden"
	APIFailing         APIProblemKind = "failing"
)

// APIProblemKinds are all kinds, those that explain the others first.
func APIProblemKinds() []APIProblemKind {
	return []APIProblemKind{APIUnreachable, APIUnauthenticated, APINamespace, APIForbidden, APIFailing}
}

// Text is the kind in words.
func (k APIProblemKind) Text() string {
	switch k {
	case APIUnreachable:
		return "cannot reach the API server"
	case APIUnauthenticated:
		return "the API server does not accept the credentials"
	case APINamespace:
		return "the namespace of the Lease does not exist"
	case APIForbidden:
		return "the API server refuses a request"
	case APIFailing:
	}
	return "the API server cannot serve a request"
}

// Remedy is what to do about it.
func (k APIProblemKind) Remedy() string {
	switch k {
	case APIUnreachable:
		return "check that the API server runs, the network to it, and the server in the kubeconfig"
	case APIUnauthenticated:
		return "check the token or the client certificate in the kubeconfig, or the service account of the pod"
	case APINamespace:
		return "create it, or set election.namespace"
	case APIForbidden:
		return "grant what deploy/rbac-controller.yaml grants to the controller's user"
	case APIFailing:
	}
	return "check the log of the API server, and etcd"
}

// Text of the problem, with its cause and what to do.
func (p APIProblem) Text() string { return p.Kind.Text() + ": " + p.Cause + "; " + p.Kind.Remedy() }
