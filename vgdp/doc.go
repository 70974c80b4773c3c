// Package vgdp decides which data mover loads of Velero may go on: DataUploads,
// DataDownloads, PodVolumeBackups and PodVolumeRestores.
//
// A data mover load goes through the phases New, Accepted, Prepared and InProgress,
// and Velero takes each step by itself. Two steps can be held: to Accepted, which
// takes one of the cluster's prepareQueueLength slots, and to InProgress, which takes
// one of the node's places. A load that may take such a step is given a ticket.
// Admission policies, which the API server evaluates, refuse the step without one, and
// allow everything when the Gate is not renewed.
//
// # Flow
//
//	ConfigMap ── ReadNodeAgent ──► Concurrency, LoadAffinity, PrepareLimit
//	                                      │
//	Nodes ────────── NewTopology ◄───────────┘   which load can run where
//	                    │
//	agents' Pressure ──►│
//	loads ──► Decide ◄──┘ ──► Admit, Start, Revoke, Release, Holds, Waiting
//
// Decide goes through the loads in order (line) and gives a ticket to each that could
// run: its Velero has a free slot, and a node that it can run on has capacity (room,
// seats). Every other load gets one reason (Wait).
//
// On each node the agent derives the Pressure from its Levels (Budget: additive
// increase, multiplicative decrease). Diagnose
// says why an accepted load is not prepared.
//
// # Concurrency
//
// All of it is values and pure functions, except that a Fleet caches what it has
// derived and belongs to one goroutine.
package vgdp
