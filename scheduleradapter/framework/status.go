package framework

// Code is the kind of an answer, as in Kubernetes' scheduling framework.
type Code uint8

const (
	// Success: go on.
	Success Code = iota
	// Error: something went wrong that is not the pod's fault.
	Error
	// Unschedulable: the pod does not fit, but would with fewer pods around.
	Unschedulable
	// UnschedulableAndUnresolvable: it would not fit either way.
	UnschedulableAndUnresolvable
	// Wait: Permit holds the pod back.
	Wait
	// Skip: the plugin has nothing to say of this pod.
	Skip
	// Pending: the pod waits for something outside the scheduler.
	Pending
)

var codeNames = [...]string{"Success", "Error", "Unschedulable", "UnschedulableAndUnresolvable", "Wait", "Skip", "Pending"}

func (c Code) String() string { return codeNames[c] }

// Rejected says whether the pod was refused for a reason of its own or the
// nodes'.
func (c Code) Rejected() bool {
	return c == Unschedulable || c == UnschedulableAndUnresolvable || c == Pending
}

// Status is a plugin's answer about a pod. The zero value is success.
type Status struct {
	Code Code
	// Plugin that answered; set by the runner.
	Plugin string
	// Reason for people, of every code but Success and Error.
	Reason string
	// Err of the code Error.
	Err error
}

// AsStatus is the answer for an error.
func AsStatus(err error) Status { return Status{Code: Error, Err: err} }

// OK says whether to go on.
func (s Status) OK() bool { return s.Code == Success }

// Message is the reason, or the error's text.
func (s Status) Message() string {
	if s.Err != nil {
		return s.Err.Error()
	}
	return s.Reason
}
