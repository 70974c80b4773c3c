package conformance

import "time"

// Outcome of one call.
type Outcome string

// The outcomes. Broken: the connection ended during the call. Late: no answer
// within the limit of a call.
const (
	Answered      Outcome = "answered"
	Refused       Outcome = "error"
	Unimplemented Outcome = "unimplemented"
	Late          Outcome = "no answer"
	Broken        Outcome = "connection ended"
)

// Question is a kind of question.
type Question string

// The questions.
const (
	Ordinary      Question = "ordinary"
	Empty         Question = "empty"
	Huge          Question = "huge"
	AtLimit       Question = "at the limit"
	Stale         Question = "stale"
	UnknownFields Question = "unknown fields"
	UnknownValues Question = "unknown values"
	NoUID         Question = "no UID"
	NoMessage     Question = "no message"
	AbsurdTop     Question = "absurd topN"
	UnknownScope  Question = "unknown scope"
	UnknownMethod Question = "unknown method"
	Concurrent    Question = "concurrent"
	Stopped       Question = "stopped"
	Resumed       Question = "resumed"
	NewHost       Question = "new host"
	Restarted     Question = "restarted"
	Killed        Question = "killed"
	Unmeasurable  Question = "unmeasurable"
)

// Methods of the plugin.
const (
	getEvictPods = "GetEvictPods"
	thresholdMet = "ThresholdMet"
	getTop       = "GetTopEvictionPods"
	noMethod     = "NoSuchMethod"
)

// Call is one call of the plugin, in the order of their beginnings.
type Call struct {
	Question Question
	Method   string
	// TopN is what GetTopEvictionPods was asked for.
	TopN    uint64
	Outcome Outcome
	Error   string
	Took    time.Duration
	Answer  Answer
}

// Answer is what is kept of an answer.
type Answer struct {
	Bytes int
	// Of ThresholdMet. Empty: all its fields have their zero values.
	Met, Operator   int32
	Observed, Limit float64
	Scope           string
	GraceSeconds    int64
	Empty           bool
	// Condition of ThresholdMet or GetEvictPods; nil: none.
	Condition *Condition
	// Named are the UIDs of the pods that it was shown and names, in order, and
	// Entries is how many pods it names in all.
	Named   []string
	Entries int
	// Strange is the first pod that it names and was not shown, in words; empty:
	// none.
	Strange string
	// DeletionGrace is the first termination grace that hosts clip; nil: none.
	DeletionGrace *int64
	// LongText is the size of the longest text in bytes.
	LongText int
}

// Condition in an answer.
type Condition struct {
	Name    string
	Type    int32
	Effects []string
}

// Registration is one registration.
type Registration struct {
	Error          string // of connecting or GetInfo; empty: none
	Refusal        string // why a host refuses its PluginInfo; empty: it does not
	Type, Name     string
	Versions       []string
	Endpoint       string
	EndpointError  string
	Token          string // of GetToken: "present", "empty", or its error
	StatusError    string // of NotifyRegistrationStatus
	User           uint32 // that listens
	Process        int32
	SecondsToServe float64 // from the start of the process
}

// End is how the process ended after SIGTERM.
type End struct {
	Ended       bool
	Took        time.Duration
	Status      string
	SocketStays bool
}

// Observations is all that was seen of one plugin.
type Observations struct {
	Socket string
	// Started: the plugin was started here, so it can be stopped and restarted.
	Started bool
	// First is its first registration, the others those after a step; nil: not
	// reached.
	First                                 Registration
	AfterNewHost, AfterRestart, AfterKill *Registration
	WithoutMeasurement                    *Registration
	Calls                                 []Call
	// Rounds is how long whole rounds took: all calls of an ordinary or huge
	// question.
	Rounds []time.Duration
	// Endings are the connections that the plugin ended, in words.
	Endings []string
	// GaveUp is why it was not asked further; empty: it was.
	GaveUp     string
	Terminated *End
	// CallLimit is how long a call might take.
	CallLimit time.Duration
}
