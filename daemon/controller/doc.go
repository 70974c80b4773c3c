// Package controller is the daemon that acts once per cluster: its parts, and the election of
// the replica that leads.
package controller
