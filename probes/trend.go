package probes

// TrendPoint is what the step from one sample to the next shows.
type TrendPoint struct {
	// AgoSeconds before the snapshot.
	AgoSeconds float64
	Stall      Ratios
	CPUBusy    Opt[float64]
}

// Trend is the history that the snapshot can see, sample by sample, oldest
// first: for plots. It is empty on a Snapshot that came from JSON.
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
