package evict

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/pods"
)

// Limits are the eviction rate limits; they hold whatever the pressure.
type Limits struct {
	PerRound     int `yaml:"perRound" unit:"pods" why:"The most evictions in one round, forced ones included; fewer where fewer release enough."`
	PerMinute    int `yaml:"perMinute" unit:"pods" why:"Eviction rate limit of the node (a token bucket), forced evictions included: a faulty plugin must not empty a node. Without saved state the bucket starts empty."`
	PerOwnerHour int `yaml:"perOwnerHour" unit:"pods" why:"Eviction rate limit of one owner (Deployment, StatefulSet, …) on this node: evicting the same workload again and again does not help."`
}

// Budgets are the token buckets of the eviction rate limits. Times are of
// CLOCK_BOOTTIME, which cannot be set. The zero value is unknown, that is empty.
type Budgets struct {
	// Boot is the boot ID of the times. Times of another boot mean only that
	// they were before this one.
	Boot string `json:"boot,omitempty"`
	// Since is when every bucket that is not stored was empty.
	Since time.Duration `json:"since"`
	// Node and Owners are the time at which each bucket was empty. A bucket is
	// this one number: its tokens are the steps that have passed since.
	Node   time.Duration            `json:"node"`
	Owners map[string]time.Duration `json:"owners,omitempty"`
	// Alone is the bucket of evictions without the controller.
	Alone time.Duration `json:"alone,omitzero"`
}

// at converts the buckets to this boot. An impossible or unknown bucket is empty.
func (b Budgets) at(boot string, now time.Duration) Budgets {
	b.Owners = maps.Clone(b.Owners)
	switch {
	case b.Boot == "":
		return Budgets{Boot: boot, Since: now, Node: now, Alone: now}
	case b.Boot != boot:
		return Budgets{Boot: boot}
	}
	b.Since, b.Node, b.Alone = min(b.Since, now), min(b.Node, now), min(b.Alone, now)
	for owner, empty := range b.Owners {
		b.Owners[owner] = min(empty, now)
	}
	return b
}

// bucket is a token bucket: at most size tokens, a new one every step.
type bucket struct {
	size int
	step time.Duration
}

func (l Limits) node() bucket {
	return bucket{l.PerMinute, time.Minute / time.Duration(max(1, l.PerMinute))}
}

func (l Limits) owner() bucket {
	return bucket{l.PerOwnerHour, time.Hour / time.Duration(max(1, l.PerOwnerHour))}
}

// left is the number of tokens.
func (k bucket) left(empty, now time.Duration) int { return min(k.size, int((now-empty)/k.step)) }

// take removes a token and returns the new time at which the bucket was empty.
func (k bucket) take(empty, now time.Duration) time.Duration {
	return max(empty, now-time.Duration(k.size)*k.step) + k.step
}

// next is the time until the next token.
func (k bucket) next(empty, now time.Duration) time.Duration { return empty + k.step - now }

func (b Budgets) owned(owner string) time.Duration {
	if empty, kept := b.Owners[owner]; kept {
		return empty
	}
	return b.Since
}

// spend takes a token for a pod from the node's and the owner's bucket. Full
// owner buckets are dropped.
func (b Budgets) spend(l Limits, p *pods.Pod, now time.Duration) Budgets {
	b.Owners = maps.Clone(b.Owners)
	maps.DeleteFunc(b.Owners, func(_ string, empty time.Duration) bool {
		return empty <= b.Since || l.owner().left(empty, now) >= l.PerOwnerHour
	})
	if b.Owners == nil {
		b.Owners = map[string]time.Duration{}
	}
	b.Owners[ownerOf(p)] = l.owner().take(b.owned(ownerOf(p)), now)
	b.Node = l.node().take(b.Node, now)
	return b
}

// refund returns an unused token.
func (b Budgets) refund(l Limits, owner string) Budgets {
	b.Owners = maps.Clone(b.Owners)
	if _, kept := b.Owners[owner]; kept {
		b.Owners[owner] -= l.owner().step
		b.Node -= l.node().step
	}
	return b
}

func ownerOf(p *pods.Pod) string { return Owner(p.Namespace, p.Owner.Kind, p.Owner.Name) }

// Owner names the workload that a pod belongs to, by its controller. Objects that
// one workload recreates under new names (the ReplicaSets of a Deployment, the
// Jobs of a CronJob) give the same name.
func Owner(namespace, kind, name string) string {
	if kind == "ReplicaSet" || kind == "Job" {
		if cut := strings.LastIndex(name, "-"); cut > 0 {
			name = name[:cut]
		}
	}
	return namespace + "/" + kind + "/" + name
}

// rate is why the node's eviction rate limit allows no eviction now; empty when
// it allows one.
func (in Input) rate(m Memory) (Code, string) {
	k := in.Config.Limits.node()
	if k.left(m.Budgets.Node, in.Uptime) > 0 {
		return "", ""
	}
	return CodeRate, fmt.Sprintf("eviction rate limit of this node reached (%d per minute); next eviction possible at %s",
		k.size, in.clockIn(k.next(m.Budgets.Node, in.Uptime)))
}

// ownerRate is the same for the pods of one owner.
func (in Input) ownerRate(m Memory, p *pods.Pod) (Code, string) {
	k, empty := in.Config.Limits.owner(), m.Budgets.owned(ownerOf(p))
	if k.left(empty, in.Uptime) > 0 {
		return "", ""
	}
	return CodeRate, fmt.Sprintf("eviction rate limit of %s on this node reached (%d per hour); next eviction possible at %s",
		ownerOf(p), k.size, in.clockIn(k.next(empty, in.Uptime)))
}

func (in Input) clockIn(d time.Duration) string { return clock(in.Time.Add(d)) }
