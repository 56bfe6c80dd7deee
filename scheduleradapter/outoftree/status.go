package outoftree

import (
	"errors"
	"fmt"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// codes by kube-scheduler's codes.
var codes = map[fwk.Code]framework.Code{
	fwk.Success:                      framework.Success,
	fwk.Error:                        framework.Error,
	fwk.Unschedulable:                framework.Unschedulable,
	fwk.UnschedulableAndUnresolvable: framework.UnschedulableAndUnresolvable,
	fwk.Wait:                         framework.Wait,
	fwk.Skip:                         framework.Skip,
	fwk.Pending:                      framework.Pending,
}

// errEnding is the status of nodes for which a plugin was not called because the
// context ended.
var errEnding = errors.New("the scheduler is ending")

// status converts the status of a plugin; codes other than Success and the allowed
// ones are errors.
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

func answer(s framework.Status) *fwk.Status {
	switch {
	case s.OK():
		return nil
	case s.Err != nil:
		return fwk.AsStatus(s.Err).WithPlugin(s.Plugin)
	}
	for upstream, own := range codes {
		if own == s.Code {
			return fwk.NewStatus(upstream, s.Reason).WithPlugin(s.Plugin)
		}
	}
	return fwk.AsStatus(fmt.Errorf("unknown status %d", s.Code))
}

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
