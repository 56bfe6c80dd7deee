package framework

// Code of a Status, as in kube-scheduler's framework.
type Code uint8

const (
	Success Code = iota
	// Error: an internal error.
	Error
	// Unschedulable: preemption may help.
	Unschedulable
	// UnschedulableAndUnresolvable: preemption does not help.
	UnschedulableAndUnresolvable
	// Wait: Permit delays the binding.
	Wait
	// Skip: the plugin does not apply to the pod.
	Skip
	// Pending: the pod waits for an external event.
	Pending
)

var codeNames = [...]string{"Success", "Error", "Unschedulable", "UnschedulableAndUnresolvable", "Wait", "Skip", "Pending"}

func (c Code) String() string { return codeNames[c] }

// Rejected reports whether the code is one of the three rejections.
func (c Code) Rejected() bool {
	return c == Unschedulable || c == UnschedulableAndUnresolvable || c == Pending
}

// Status of a plugin for a pod. The zero value is Success.
type Status struct {
	Code Code
	// Plugin is set by the runner.
	Plugin string
	// Reason of a code other than Success and Error.
	Reason string
	// Err of the code Error.
	Err error
}

// AsStatus wraps an error.
func AsStatus(err error) Status { return Status{Code: Error, Err: err} }

// OK reports Success.
func (s Status) OK() bool { return s.Code == Success }

// Message is Reason, or the text of Err.
func (s Status) Message() string {
	if s.Err != nil {
		return s.Err.Error()
	}
	return s.Reason
}
