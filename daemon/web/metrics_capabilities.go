package web

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll/capability"
)

// appendCapabilities appends what is known of them; nothing for an unknown one.
func appendCapabilities(b []byte, list []capability.Capability) []byte {
	known := slices.DeleteFunc(slices.Clone(list), func(c capability.Capability) bool { return c.State == capability.Unknown })
	return appendFamilies(b, known, func(b []byte, c *capability.Capability) []byte { return appendLabel(b, "capability", c.Name) }, []family[capability.Capability]{
		{
			"plimsoll_capability_available", gauge, "1 while the cluster has what this part of Plimsoll needs, else 0; absent while unknown. The page has the reason and the consequence.",
			func(b []byte, c *capability.Capability) []byte {
				return appendBool(b, c.State == capability.Available)
			},
		},
	})
}
