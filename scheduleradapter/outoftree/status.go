package outoftree

import (
	"errors"
	"fmt"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// codes of the framework by those of kube-scheduler's.
var codes = map[fwk.Code]framework.Code{
	fwk.Success:                      framework.Success,
	fwk.Error:                        framework.Error,
	fwk.Unschedulable:                framework.Unschedulable,
	fwk.UnschedulableAndUnresolvable: framework.UnschedulableAndUnresolvable,
	fwk.Wait:                         framework.Wait,
	fwk.Skip:                         framework.Skip,
	fwk.Pending:                      framework.Pending,
}

// errEnding is the answer about a node that a plugin was not asked about any more.
var errEnding = errors.New("the scheduler is ending")

// status is a plugin's answer, in which the given codes are allowed besides
// success; any other is an error.
func status(plugin string, point framework.Point, s *fwk.Status, allowed ...fwk.Code) framework.Status {
	if s.IsSuccess() {
		return framework.Status{}
	}
	for _, code := range allowed {
		if s.Code() == code {
			return framework.Status{Code: codes[code], Reason: s.Message()}
		}
	}
	err := s.AsError()
	if err == nil {
		err = fmt.Errorf("unexpected status %s", s.Code())
	}
	return framework.AsStatus(fmt.Errorf("running %s plugin %q: %w", point, plugin, err))
}

// answer is a status as plugins see it.
func answer(s framework.Status) *fwk.Status {
	switch {
	case s.OK():
		return nil
	case s.Err != nil:
		return fwk.AsStatus(s.Err).WithPlugin(s.Plugin)
	}
	for theirs, ours := range codes {
		if ours == s.Code {
			return fwk.NewStatus(theirs, s.Reason).WithPlugin(s.Plugin)
		}
	}
	return fwk.AsStatus(fmt.Errorf("unknown status %d", s.Code))
}

// refused is a rejection as plugins see it.
func refused(c *framework.Cycle, r framework.Rejection) *fwk.Status {
	code := fwk.Unschedulable
	switch {
	case r.Pending:
		code = fwk.Pending
	case r.Unresolvable:
		code = fwk.UnschedulableAndUnresolvable
	}
	plugin, reasons := c.Explain(r)
	return fwk.NewStatus(code, reasons...).WithPlugin(plugin)
}
