// Package vgdp decides which loads of Velero's data movers may go on: its
// DataUploads, DataDownloads, PodVolumeBackups and PodVolumeRestores.
//
// A load goes New, Accepted, Prepared, InProgress, and Velero takes each step by
// itself. Two of them can be held: to Accepted, by which it takes one of
// prepareQueueLength slots of the cluster, and to InProgress, by which it takes
// one of its node's places. Whoever may take such a step is given a ticket;
// gates that the API server itself evaluates let nobody pass without, and let
// everybody pass when nobody renews them.
//
// # Flow
//
//	ConfigMap ── ReadNodeAgent ──► Concurrency, LoadAffinity, PrepareLimit
//	                                      │
//	Nodes ────────── NewFleet ◄───────────┘   who can run where
//	                    │
//	agents' Pressure ──►│
//	loads ──► Decide ◄──┘ ──► Admit, Start, Revoke, Release, Holds, Waiting
//
// Decide looks at the loads in order (line) and gives a ticket to each that
// could run: its Velero has a slot left and a node that it can run on has room
// (room, seats). Every other one has one reason (Wait).
//
// On each node the agent makes the Pressure out of its Levels (Budget) and slows
// down the movers that run (Throttle). Diagnose says what keeps an accepted load
// from being prepared.
//
// # Concurrency
//
// All of it is values and pure functions; a Fleet keeps what it has found out
// and belongs to one goroutine.
package vgdp
