package validation

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
)

const needsAlways = "may not be set for init containers without restartPolicy=Always"

// checkContainers checks all containers of a pod with their volumes.
func checkContainers(spec *v1.PodSpec, volumes map[string]v1.VolumeSource, at *field.Path) (faults field.ErrorList) {
	c := containers{spec: spec, volumes: volumes, names: map[string]bool{}}
	if len(spec.Containers) == 0 {
		faults = append(faults, field.Required(at.Child("containers"), ""))
	}
	ports := map[string]bool{}
	for i := range spec.Containers {
		container, at := &spec.Containers[i], at.Child("containers").Index(i)
		faults = append(faults, c.check(container, at)...)
		faults = append(faults, c.unique(container.Name, at)...)
		faults = append(faults, c.checkProbes(container, at)...)
		faults = append(faults, checkRestart(container, at)...)
		faults = append(faults, checkHostPorts(container.Ports, ports, at.Child("ports"))...)
	}
	for i := range spec.InitContainers {
		container, list := &spec.InitContainers[i], at.Child("initContainers")
		at := list.Index(i)
		faults = append(faults, c.check(container, at)...)
		faults = append(faults, c.unique(container.Name, at)...)
		faults = append(faults, checkRestart(container, at)...)
		// Kubernetes gives this conflict the path of the first init container.
		faults = append(faults, checkHostPorts(container.Ports, map[string]bool{}, list.Index(0).Child("ports"))...)
		if ptr.Deref(container.RestartPolicy, "") == v1.ContainerRestartPolicyAlways {
			faults = append(faults, c.checkProbes(container, at)...)
		} else {
			faults = append(faults, checkEnding(container, at)...)
		}
	}
	return append(faults, c.checkEphemeral(at.Child("ephemeralContainers"))...)
}

// checkEnding checks an init container that ends before the pod starts.
func checkEnding(c *v1.Container, at *field.Path) (faults field.ErrorList) {
	for name, set := range admission.InOrder(map[string]bool{"lifecycle": c.Lifecycle != nil, "livenessProbe": c.LivenessProbe != nil, "readinessProbe": c.ReadinessProbe != nil, "startupProbe": c.StartupProbe != nil}) {
		if set {
			faults = append(faults, field.Forbidden(at.Child(name), needsAlways))
		}
	}
	for i, policy := range c.ResizePolicy {
		if policy.RestartPolicy == v1.RestartContainer {
			faults = append(faults, field.Invalid(at.Child("resizePolicy").Index(i).Child("restartPolicy"), policy.RestartPolicy, needsAlways))
		}
	}
	return faults
}

// containers are those of a pod, with the names that were seen.
type containers struct {
	spec    *v1.PodSpec
	volumes map[string]v1.VolumeSource
	names   map[string]bool
}

func (c *containers) unique(name string, at *field.Path) field.ErrorList {
	if c.names[name] {
		return field.ErrorList{field.Duplicate(at.Child("name"), name)}
	}
	c.names[name] = true
	return nil
}

// check checks what all types of containers have, but the amounts of resources.
func (c *containers) check(container *v1.Container, at *field.Path) (faults field.ErrorList) {
	faults = append(faults, named(container.Name, at.Child("name"), validation.IsDNS1123Label)...)
	faults = append(faults, given(container.Image, at.Child("image"))...)
	faults = append(faults, supported(container.TerminationMessagePolicy, at.Child("terminationMessagePolicy"), v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)...)
	faults = append(faults, supported(container.ImagePullPolicy, at.Child("imagePullPolicy"), v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)...)
	faults = append(faults, checkPorts(container.Ports, at.Child("ports"))...)
	faults = append(faults, checkEnv(container, at)...)
	faults = append(faults, checkMounts(container, c.volumes, at.Child("volumeMounts"))...)
	faults = append(faults, c.checkResize(container.ResizePolicy, at.Child("resizePolicy"))...)
	return append(faults, checkSecurity(container.SecurityContext, ptr.Deref(c.spec.HostUsers, true), at.Child("securityContext"))...)
}

func (c *containers) checkResize(policies []v1.ContainerResizePolicy, at *field.Path) (faults field.ErrorList) {
	seen := map[v1.ResourceName]bool{}
	for i, policy := range policies {
		if seen[policy.ResourceName] {
			faults = append(faults, field.Duplicate(at.Index(i), policy.ResourceName))
		}
		seen[policy.ResourceName] = true
		faults = append(faults, supported(policy.ResourceName, at, v1.ResourceCPU, v1.ResourceMemory)...)
		faults = append(faults, supported(policy.RestartPolicy, at, v1.NotRequired, v1.RestartContainer)...)
		if c.spec.RestartPolicy == v1.RestartPolicyNever && policy.RestartPolicy != v1.NotRequired {
			faults = append(faults, field.Invalid(at, policy.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
		}
	}
	return faults
}

func checkRestart(c *v1.Container, at *field.Path) (faults field.ErrorList) {
	if c.RestartPolicy == nil && len(c.RestartPolicyRules) > 0 {
		faults = append(faults, field.Required(at.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
	}
	faults = append(faults, optional(c.RestartPolicy, at.Child("restartPolicy"), v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure)...)
	for i, rule := range c.RestartPolicyRules {
		at := at.Child("restartPolicyRules").Index(i)
		faults = append(faults, known(rule.Action, at.Child("action"), v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers)...)
		if rule.ExitCodes == nil {
			faults = append(faults, field.Required(at.Child("exitCodes"), "must be specified"))
			continue
		}
		faults = append(faults, known(rule.ExitCodes.Operator, at.Child("exitCodes", "operator"), v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)...)
	}
	return faults
}

func checkPorts(ports []v1.ContainerPort, at *field.Path) (faults field.ErrorList) {
	seen := map[string]bool{}
	for i, port := range ports {
		at := at.Index(i)
		if port.Name != "" {
			switch why := validation.IsValidPortName(port.Name); {
			case len(why) > 0:
				faults = append(faults, valid(port.Name, at.Child("name"), why)...)
			case seen[port.Name]:
				faults = append(faults, field.Duplicate(at.Child("name"), port.Name))
			}
			seen[port.Name] = true
		}
		if port.ContainerPort == 0 {
			faults = append(faults, field.Required(at.Child("containerPort"), ""))
		} else {
			faults = append(faults, valid(port.ContainerPort, at.Child("containerPort"), validation.IsValidPortNum(int(port.ContainerPort)))...)
		}
		if port.HostPort != 0 {
			faults = append(faults, valid(port.HostPort, at.Child("hostPort"), validation.IsValidPortNum(int(port.HostPort)))...)
		}
		faults = append(faults, supported(port.Protocol, at.Child("protocol"), v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)...)
	}
	return faults
}

// checkHostPorts refuses a port of the host that was taken before.
func checkHostPorts(ports []v1.ContainerPort, taken map[string]bool, at *field.Path) (faults field.ErrorList) {
	for i, port := range ports {
		if port.HostPort == 0 {
			continue
		}
		key := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
		if taken[key] {
			faults = append(faults, field.Duplicate(at.Index(i).Child("hostPort"), key))
		}
		taken[key] = true
	}
	return faults
}

// checkEphemeral checks the containers that are added to a running pod for debugging.
func (c *containers) checkEphemeral(at *field.Path) (faults field.ErrorList) {
	targets := map[string]bool{}
	for _, list := range [][]v1.Container{c.spec.Containers, c.spec.InitContainers} {
		for i := range list {
			targets[list[i].Name] = true
		}
	}
	for i := range c.spec.EphemeralContainers {
		e, at := &c.spec.EphemeralContainers[i], at.Index(i)
		container := (*v1.Container)(&e.EphemeralContainerCommon)
		faults = append(faults, c.check(container, at)...)
		faults = append(faults, trimmed(container.Image, at.Child("image"))...)
		faults = append(faults, c.unique(e.Name, at)...)
		if e.TargetContainerName != "" && !targets[e.TargetContainerName] {
			faults = append(faults, field.NotFound(at.Child("targetContainerName"), e.TargetContainerName))
		}
		for name, set := range admission.InOrder(map[string]bool{"ports": e.Ports != nil, "resources": len(e.Resources.Limits)+len(e.Resources.Requests)+len(e.Resources.Claims) > 0, "livenessProbe": e.LivenessProbe != nil,
			"readinessProbe": e.ReadinessProbe != nil, "startupProbe": e.StartupProbe != nil, "lifecycle": e.Lifecycle != nil, "resizePolicy": e.ResizePolicy != nil,
			"restartPolicy": e.RestartPolicy != nil, "restartPolicyRules": e.RestartPolicyRules != nil}) {
			if set {
				faults = append(faults, field.Forbidden(at.Child(name), "cannot be set for an Ephemeral Container"))
			}
		}
		for j, mount := range e.VolumeMounts {
			for name, path := range admission.InOrder(map[string]string{"subPath": mount.SubPath, "subPathExpr": mount.SubPathExpr}) {
				if path != "" {
					faults = append(faults, field.Forbidden(at.Child("volumeMounts").Index(j).Child(name), "cannot be set for an Ephemeral Container"))
				}
			}
		}
	}
	return faults
}
