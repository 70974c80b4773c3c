// Package e2e tests the built program as a user meets it: as a process, over
// its sockets, on real kernel files. Short in `make test`, whole in `make e2e`
// (PLIMSOLL_LONG=1).
package e2e
