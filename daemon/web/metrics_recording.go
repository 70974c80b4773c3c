package web

import "github.com/plimsoll-dev/plimsoll/recording"

// appendRecording appends the series of the recording; nothing where there is none.
func appendRecording(b []byte, r *recording.Status) []byte {
	if r == nil {
		return b
	}
	one := []recording.Status{*r}
	b = appendFamilies(b, one, noLabels, []family[recording.Status]{
		{
			"plimsoll_recording_success", gauge, "1 while samples are recorded, 0 while they cannot be; the page and the log have the reason. Absent without a recording.",
			func(b []byte, s *recording.Status) []byte { return appendBool(b, s.Failed == "") },
		},
		{
			"plimsoll_recording_bytes", gauge, "Size of all segments of the recording.",
			func(b []byte, s *recording.Status) []byte { return appendCount(b, s.Bytes) },
		},
		{
			"plimsoll_recording_segments", gauge, "Segments of the recording.",
			func(b []byte, s *recording.Status) []byte { return appendCount(b, uint64(s.Segments)) },
		},
	})
	return appendCounted(b, []reasonCount{{"lost", r.Lost}, {"recorded", r.Recorded}}, "result", family[reasonCount]{
		"plimsoll_recording_samples_total", counter, "Samples by result: recorded, or lost because they could not be written.", appendCounter,
	})
}
