package validation

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/internal/admission"
)

// checkProbes checks the probes and the hooks of a container that runs as long as its pod.
func (c *containers) checkProbes(container *v1.Container, at *field.Path) (faults field.ErrorList) {
	if lifecycle := container.Lifecycle; lifecycle != nil {
		at := at.Child("lifecycle")
		if h := lifecycle.PostStart; h != nil {
			faults = append(faults, c.checkHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep}, at.Child("postStart"))...)
		}
		if h := lifecycle.PreStop; h != nil {
			faults = append(faults, c.checkHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep}, at.Child("preStop"))...)
		}
	}
	for _, each := range []struct {
		name  string
		probe *v1.Probe
	}{{"livenessProbe", container.LivenessProbe}, {"readinessProbe", container.ReadinessProbe}, {"startupProbe", container.StartupProbe}} {
		if each.probe == nil {
			continue
		}
		at, readiness := at.Child(each.name), each.name == "readinessProbe"
		faults = append(faults, c.checkProbe(each.probe, at)...)
		if !readiness && each.probe.SuccessThreshold != 1 {
			faults = append(faults, field.Invalid(at.Child("successThreshold"), each.probe.SuccessThreshold, "must be 1"))
		}
		if readiness && each.probe.TerminationGracePeriodSeconds != nil {
			faults = append(faults, field.Invalid(at.Child("terminationGracePeriodSeconds"), *each.probe.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
		}
	}
	return faults
}

func (c *containers) checkProbe(p *v1.Probe, at *field.Path) field.ErrorList {
	faults := c.checkHandler(handler{p.Exec, p.HTTPGet, p.TCPSocket, p.GRPC, nil}, at)
	for name, n := range admission.InOrder(map[string]int32{"initialDelaySeconds": p.InitialDelaySeconds, "timeoutSeconds": p.TimeoutSeconds, "periodSeconds": p.PeriodSeconds,
		"successThreshold": p.SuccessThreshold, "failureThreshold": p.FailureThreshold}) {
		faults = append(faults, notNegative(n, at.Child(name))...)
	}
	if grace := p.TerminationGracePeriodSeconds; grace != nil && *grace <= 0 {
		faults = append(faults, field.Invalid(at.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0"))
	}
	return faults
}

// handler is what a probe or a hook does, one of them.
type handler struct {
	exec  *v1.ExecAction
	http  *v1.HTTPGetAction
	tcp   *v1.TCPSocketAction
	grpc  *v1.GRPCAction
	sleep *v1.SleepAction
}

func (c *containers) checkHandler(h handler, at *field.Path) (faults field.ErrorList) {
	seen := false
	for _, each := range []struct {
		name  string
		set   bool
		check func(at *field.Path) field.ErrorList
	}{
		{"exec", h.exec != nil, func(at *field.Path) field.ErrorList {
			if len(h.exec.Command) == 0 {
				return field.ErrorList{field.Required(at.Child("command"), "")}
			}
			return nil
		}},
		{"httpGet", h.http != nil, func(at *field.Path) field.ErrorList { return checkHTTP(h.http, at) }},
		{"tcpSocket", h.tcp != nil, func(at *field.Path) field.ErrorList { return checkPort(h.tcp.Port, at.Child("port")) }},
		{"grpc", h.grpc != nil, func(at *field.Path) field.ErrorList {
			return checkPort(intstr.FromInt32(h.grpc.Port), at.Child("port"))
		}},
		{"sleep", h.sleep != nil, func(at *field.Path) field.ErrorList {
			if grace := c.spec.TerminationGracePeriodSeconds; grace != nil && (h.sleep.Seconds < 0 || h.sleep.Seconds > *grace) {
				return field.ErrorList{field.Invalid(at, h.sleep.Seconds, "must be at most terminationGracePeriodSeconds")}
			}
			return nil
		}},
	} {
		switch {
		case each.set && seen:
			faults = append(faults, field.Forbidden(at.Child(each.name), "may not specify more than 1 handler type"))
		case each.set:
			seen = true
			faults = append(faults, each.check(at.Child(each.name))...)
		}
	}
	if !seen {
		faults = append(faults, field.Required(at, "must specify a handler type"))
	}
	return faults
}

func checkHTTP(h *v1.HTTPGetAction, at *field.Path) field.ErrorList {
	faults := append(given(h.Path, at.Child("path")), checkPort(h.Port, at.Child("port"))...)
	faults = append(faults, known(h.Scheme, at.Child("scheme"), v1.URISchemeHTTP, v1.URISchemeHTTPS)...)
	for _, header := range h.HTTPHeaders {
		faults = append(faults, valid(header.Name, at.Child("httpHeaders"), validation.IsHTTPHeaderName(header.Name))...)
	}
	return faults
}

// checkPort checks the number or the name of a port.
func checkPort(port intstr.IntOrString, at *field.Path) field.ErrorList {
	if port.Type == intstr.Int {
		return valid(port.IntValue(), at, validation.IsValidPortNum(port.IntValue()))
	}
	return valid(port.StrVal, at, validation.IsValidPortName(port.StrVal))
}
