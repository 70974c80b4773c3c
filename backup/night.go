package backup

import "time"

// Night is what is foreseen of the Backups of one Velero, for people and metrics.
type Night struct {
	// Namespace of the Velero.
	Namespace string `json:"namespace"`
	// From is when it was foreseen, and Until how far.
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	Limit int       `json:"limit"`
	// Backups that run, wait, or are to come, by when they begin.
	Backups []Foreseen `json:"backups"`
	// Schedules by name.
	Schedules []ScheduleState `json:"schedules"`
	// Omitted is of how many Schedules only the first Backups that are to come are in it.
	Omitted int `json:"omitted,omitempty"`
	// Cut: it ends before a day is over, because so many Backups wait.
	Cut bool `json:"cut,omitempty"`
}

// Foreseen is what is foreseen of one Backup.
type Foreseen struct {
	// Name of the Backup; empty: it is to come.
	Name     string `json:"name,omitempty"`
	Schedule string `json:"schedule,omitempty"`
	Phase    Phase  `json:"phase,omitempty"`
	// Created is when it was, or will be.
	Created time.Time `json:"created"`
	// Opens is when its window opens, and Deadline by when it is to be complete; absent: no
	// window, no deadline.
	Opens    time.Time `json:"opens,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"`
	// First: what opens is the window of first Backups.
	First bool `json:"first,omitempty"`
	// Begins and Ends are expected; it ends between Earliest and Latest with a probability
	// of 90 %. Absent: after Until, or not known (Why).
	Begins   time.Time `json:"begins,omitzero"`
	Ends     time.Time `json:"ends,omitzero"`
	Earliest time.Time `json:"earliest,omitzero"`
	Latest   time.Time `json:"latest,omitzero"`
	// LateSeconds is by how much it will miss its deadline, Because the reason, and Helps
	// what would make it be in time.
	LateSeconds float64  `json:"lateSeconds,omitempty"`
	Because     string   `json:"because,omitempty"`
	Helps       []string `json:"helps,omitempty"`
	// Why there is no forecast; empty: there is one.
	Why string `json:"why,omitempty"`
}

// ScheduleState is what is wanted of a Schedule, and what came of it.
type ScheduleState struct {
	Name   string `json:"name"`
	Cron   string `json:"cron"`
	Paused bool   `json:"paused,omitempty"`
	// RPOSeconds is how old its newest good Backup may become; 0: any age.
	RPOSeconds float64 `json:"rpoSeconds,omitempty"`
	Window     string  `json:"window,omitempty"`
	Priority   int32   `json:"priority,omitempty"`
	// Problems are the annotations that are not followed.
	Problems []string `json:"problems,omitempty"`
	// Newest is when its newest good Backup was started; absent: there is none.
	Newest time.Time `json:"newest,omitzero"`
	// Deadline by which the next good one is to be complete; absent: there is none.
	Deadline time.Time `json:"deadline,omitzero"`
	// Missed: Deadline has passed.
	Missed bool `json:"missed,omitempty"`
	// LateSeconds is by how much the next good Backup will miss Deadline; 0: it will not.
	// Absent: that is not known, or there is no deadline, or it has passed.
	LateSeconds *float64 `json:"lateSeconds,omitempty"`
	// Because is why it will, and Helps what would make it be in time.
	Because string   `json:"because,omitempty"`
	Helps   []string `json:"helps,omitempty"`
	// Ends is when the next good Backup is expected to; it does between Earliest and Latest
	// with a probability of 90 %. Absent: not in the forecast, or not known.
	Ends     time.Time `json:"ends,omitzero"`
	Earliest time.Time `json:"earliest,omitzero"`
	Latest   time.Time `json:"latest,omitzero"`
	// Runs are the good ones, of the newest, from which durations are learned. Usually one
	// takes so long, and with a probability of 90 % between the other two.
	Runs           int     `json:"runs"`
	UsualSeconds   float64 `json:"usualSeconds,omitempty"`
	LeastSeconds   float64 `json:"leastSeconds,omitempty"`
	LongestSeconds float64 `json:"longestSeconds,omitempty"`
}
