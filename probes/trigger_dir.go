package probes

// UnifiedDir is the directory of the cgroup v2 hierarchy, the only one with
// pressure files; empty if none is mounted.
func (c *Cgroups) UnifiedDir() string {
	i, mounted := c.at[unified]
	if !mounted {
		return ""
	}
	return c.dirs[i]
}
