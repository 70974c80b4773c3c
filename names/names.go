// Package names has the domain of everything that Plimsoll writes into a
// cluster: annotations, labels, conditions, taints, and its API group. Each name
// is made of it where it is used, and here if packages share it.
package names

const (
	// Group is the API group, and the domain of the other names.
	Group = "plimsoll.dev"
	// Prefix of each annotation, label, condition type and taint key: the kubelet's
	// own MemoryPressure is another condition. Manifests spell it
	// out.
	Prefix = Group + "/"
	// APIVersion of Plimsoll's objects and of its configuration.
	APIVersion = Prefix + "v1alpha1"

	// SkipEviction is "true" on a pod whose owner opts out of evictions, unless the
	// configuration names other opt-outs.
	SkipEviction = Prefix + "skip-eviction"
	// Throttle is a label by which the owner of a pod allows or forbids throttling it:
	// allow or never.
	Throttle = Prefix + "throttle"
	// Waiting is why a Backup or a data mover load waits, as JSON; only the
	// controller writes it.
	Waiting = Prefix + "waiting"
	// Priority is an int32 that users set on Backups and data mover loads: the higher
	// comes first.
	Priority = Prefix + "priority"
	// RPO is a duration that users set on Schedules, Backups and namespaces: how old the
	// newest good Backup may become.
	RPO = Prefix + "rpo"
	// Window is set in the same places: the time of day in which Backups start and end,
	// such as "22:00-06:00 Europe/Berlin".
	Window = Prefix + "window"
)
