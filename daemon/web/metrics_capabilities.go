package web

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll/daemon/capabilities"
)

// appendCapabilities appends what is known of them; nothing for an unknown one.
func appendCapabilities(b []byte, list []capabilities.Capability) []byte {
	known := slices.DeleteFunc(slices.Clone(list), func(c capabilities.Capability) bool { return c.State == capabilities.Unknown })
	return appendFamilies(b, known, func(b []byte, c *capabilities.Capability) []byte { return appendLabel(b, "capability", string(c.Name)) }, []family[capabilities.Capability]{
		{
			"plimsoll_capability_available", gauge, "1 while the cluster has what this part of Plimsoll needs, else 0; absent while unknown. The page has the reason and the consequence.",
			func(b []byte, c *capabilities.Capability) []byte {
				return appendBool(b, c.State == capabilities.Available)
			},
		},
	})
}
