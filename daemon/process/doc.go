// Package process is what agent and controller have in common as processes: how they reach
// the API server, open web addresses, report to systemd, notice a loop that is
// stuck, and end.
package process
