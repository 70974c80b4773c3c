package snapshot

// TrendPoint has the rates between two consecutive samples.
type TrendPoint struct {
	// AgoSeconds is the time before the snapshot.
	AgoSeconds float64
	Stall      Ratios
	CPUBusy    Opt[float64]
}

// Trend returns the rates from sample to sample over all that the snapshot can
// look back on, oldest first, for plots. It is empty for a Snapshot that was
// decoded from JSON.
func (s *Snapshot) Trend() []TrendPoint {
	var trend []TrendPoint
	for i := 1; i < len(s.points); i++ {
		w := Window{points: s.points[:i+1], from: i - 1, to: s.points[i], seq: s.Sequence - uint64(len(s.points)-1-i)}
		trend = append(trend, TrendPoint{
			AgoSeconds: (s.Monotonic() - w.to.Monotonic).Seconds(), Stall: w.Pressure(), CPUBusy: w.CPUBusy(),
		})
	}
	return trend
}
