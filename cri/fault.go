package cri

import (
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// settledAfter is how long a fault must not have shown before it counts as ended.
const settledAfter = time.Minute

// fault is one that may come and go: it is logged when it begins, when it changes and when it has ended.
type fault struct {
	text  string // of the last failure; "" after a success
	kinds map[string]bool
	last  time.Time
}

// begins reports whether the fault is of a kind that it has not been of since it began.
func (f *fault) begins(err error, now time.Time) bool {
	f.text, f.last = err.Error(), now
	kind := kindOf(err)
	if f.kinds == nil {
		f.kinds = map[string]bool{}
	}
	known := f.kinds[kind]
	f.kinds[kind] = true
	return !known
}

// ends reports whether the fault has ended.
func (f *fault) ends(now time.Time) bool {
	f.text = ""
	return now.Sub(f.last) >= settledAfter
}

// kindOf is an error without what differs each time, such as ids and times: words that have a digit.
func kindOf(err error) string {
	if status.Code(err) == codes.DeadlineExceeded {
		return codes.DeadlineExceeded.String()
	}
	words := strings.Fields(status.Code(err).String() + " " + err.Error())
	kept := words[:0]
	for _, word := range words {
		if !strings.ContainsFunc(word, unicode.IsDigit) {
			kept = append(kept, word)
		}
	}
	return strings.Join(kept, " ")
}

// note records whether a method, or one of its objects, fails; nil if none does.
func (r *Runtime) note(method string, err error) {
	f := r.faults[method]
	if status.Code(err) == codes.Unimplemented {
		return // Missing has it
	}
	if err != nil && f == nil {
		f = &fault{}
		r.faults[method] = f
	}
	switch {
	case err != nil:
		if f.begins(err, time.Now()) {
			r.log.Warn("a call of the container runtime fails; what its other calls say stays in use", "method", method, "error", err)
		}
	case f != nil && f.ends(time.Now()):
		delete(r.faults, method)
		r.log.Info("a call of the container runtime succeeds again", "method", method)
	}
}

// failing has the errors of the methods that fail.
func failing(faults map[string]*fault) (texts map[string]string) {
	for method, f := range faults {
		if f.text == "" {
			continue
		}
		if texts == nil {
			texts = map[string]string{}
		}
		texts[method] = f.text
	}
	return texts
}
