package suite_test

import (
	"encoding/json"
	"maps"
	"slices"
)

// podParts are fields of the specs of pods, right and wrong ones.
var podParts = []string{
	`{"hostNetwork":true}`, `{"hostPID":true,"shareProcessNamespace":true}`, `{"shareProcessNamespace":true}`, `{"hostUsers":false,"hostIPC":true}`, `{"hostUsers":false}`,
	`{"nodeSelector":{"disk":"ssd"}}`, `{"nodeSelector":{"-":"a b"}}`, `{"hostname":"h","subdomain":"s"}`, `{"hostname":"H.h"}`, `{"serviceAccountName":"A"}`,
	`{"restartPolicy":"OnFailure"}`, `{"restartPolicy":"Never"}`, `{"restartPolicy":"Sometimes"}`, `{"dnsPolicy":"Default"}`, `{"dnsPolicy":"Other"}`,
	`{"dnsPolicy":"None"}`, `{"dnsPolicy":"None","dnsConfig":{"nameservers":["1.2.3.4"],"searches":["a.b","c_d."],"options":[{"name":"ndots","value":"2"}]}}`,
	`{"dnsConfig":{"nameservers":["a","1.1.1.1","1.1.1.2","::1"],"options":[{"value":"2"}]}}`, `{"hostAliases":[{"ip":"1.2.3.4","hostnames":["a"]},{"ip":"x","hostnames":["A b"]}]}`,
	`{"activeDeadlineSeconds":0}`, `{"activeDeadlineSeconds":-5}`, `{"terminationGracePeriodSeconds":-1}`, `{"enableServiceLinks":false,"automountServiceAccountToken":false}`,
	`{"schedulerName":"other"}`, `{"imagePullSecrets":[{"name":"s"}]}`, `{"readinessGates":[{"conditionType":"a/b"},{"conditionType":"-"}]}`, `{"os":{"name":"linux"}}`,
	`{"schedulingGates":[{"name":"example.com/a"}]}`, `{"schedulingGates":[{"name":"a"},{"name":"a"}]}`, `{"schedulingGates":[{"name":"/"}]}`, `{"schedulingGates":[{"name":"a"}],"nodeName":"n1"}`,
	`{"preemptionPolicy":"Never"}`, `{"preemptionPolicy":"Other"}`, `{"runtimeClassName":"missing"}`, `{"overhead":{"cpu":"1"}}`, `{"priority":0}`, `{"priority":7}`, `{"setHostnameAsFQDN":true}`,
	`{"ephemeralContainers":[{"name":"e","image":"i"}]}`, `{"resources":{"requests":{"cpu":"2"}}}`, `{"resources":{"limits":{"memory":"1Gi"},"requests":{"cpu":"10m"}}}`,
	`{"resources":{"limits":{"example.com/a":"1"}}}`,
	// tolerations
	`{"tolerations":[{"operator":"Exists"}]}`, `{"tolerations":[{"key":"k","value":"v"}]}`, `{"tolerations":[{"key":"k","operator":"Equal","value":"a b"}]}`,
	`{"tolerations":[{"key":"k","operator":"Exists","value":"v"}]}`, `{"tolerations":[{"key":"k","operator":"Other"}]}`, `{"tolerations":[{"key":"k","operator":"Exists","effect":"Other"}]}`,
	`{"tolerations":[{"operator":"Equal","value":"v"}]}`, `{"tolerations":[{"key":"-"}]}`, `{"tolerations":[{"key":"k","operator":"Exists","tolerationSeconds":5}]}`, `{"tolerations":[{"key":"k","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}]}`,
	// topology spread
	`{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":"a"}}}]}`,
	`{"topologySpreadConstraints":[{"maxSkew":2,"topologyKey":"zone","whenUnsatisfiable":"ScheduleAnyway","minDomains":2,"nodeTaintsPolicy":"Honor"}]}`,
	`{"topologySpreadConstraints":[{"maxSkew":0,"whenUnsatisfiable":"Other","nodeAffinityPolicy":"Other","minDomains":0}]}`,
	`{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":"a"}},"matchLabelKeys":["app","more"]},{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}]}`,
	`{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchExpressions":[{"key":"app","operator":"NotIn","values":["a"]}]},"matchLabelKeys":["app"]}]}`,
	`{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule","matchLabelKeys":["app"]}]}`,
	// affinity
	`{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"disk","operator":"In","values":["ssd"]}]}]}}}}`,
	`{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[]}}}}`,
	`{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In"},{"key":"-","operator":"Exists","values":["x"]},{"key":"b","operator":"Gt","values":["1","2"]},{"key":"c","operator":"Near"},{"key":"d","operator":"NotIn","values":["a b"]}]}]}}}}`,
	`{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["A b"]},{"key":"metadata.name","operator":"NotIn"},{"key":"other","operator":"Exists"}]}]}}}}`,
	`{"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":0,"preference":{"matchExpressions":[{"key":"a","operator":"In","values":["a b"]}]}},{"weight":101,"preference":{}}]}}}`,
	`{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone","labelSelector":{"matchLabels":{"app":"a"}},"namespaces":["default"]}]}}}`,
	`{"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"","namespaces":["A"],"labelSelector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}]}}}`,
	`{"affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":200,"podAffinityTerm":{"topologyKey":"zone","matchLabelKeys":["app"],"labelSelector":{"matchLabels":{"x":"y"}}}}]}}}`,
	`{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone","labelSelector":{"matchLabels":{"app":"b"}},"matchLabelKeys":["app","more"],"mismatchLabelKeys":["tier"]}]}}}`,
	`{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone","mismatchLabelKeys":["app"]}]}}}`,
	// security
	`{"securityContext":{"runAsUser":1000,"runAsGroup":-1,"fsGroup":3000000000,"supplementalGroups":[1,-2]}}`, `{"securityContext":{"runAsNonRoot":true,"fsGroupChangePolicy":"OnRootMismatch","seccompProfile":{"type":"RuntimeDefault"}}}`,
	`{"securityContext":{"seccompProfile":{"type":"Localhost"},"appArmorProfile":{"type":"Unconfined","localhostProfile":"x"}}}`, `{"securityContext":{"seccompProfile":{"type":"Other","localhostProfile":"a"},"fsGroupChangePolicy":"Other"}}`,
	`{"securityContext":{"sysctls":[{"name":"kernel.shm_rmid_forced","value":"0"},{"name":"A","value":"0"},{"name":"net.core.somaxconn","value":"1"},{"name":"net.core.somaxconn","value":"1"}]}}`,
	`{"securityContext":{"supplementalGroupsPolicy":"Strict","seLinuxChangePolicy":"Recursive"}}`,
	// volumes
	`{"volumes":[{"name":"v"}]}`, `{"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Gi","medium":"Memory"}},{"name":"v","emptyDir":{}}]}`, `{"volumes":[{"name":"V_","emptyDir":{"sizeLimit":"-1"}}]}`, `{"volumes":[{"emptyDir":{}}]}`,
	`{"volumes":[{"name":"v","hostPath":{"path":"/a","type":"Directory"}},{"name":"w","hostPath":{"path":"/../a","type":"Other"}},{"name":"x","hostPath":{"path":""}}]}`,
	`{"volumes":[{"name":"v","emptyDir":{},"hostPath":{"path":"/a"}}]}`, `{"volumes":[{"name":"v","secret":{"secretName":"s","defaultMode":511,"items":[{"key":"k","path":"p","mode":256}]}}]}`,
	`{"volumes":[{"name":"v","secret":{"defaultMode":512,"items":[{"path":"../p","mode":-1},{"key":"k"},{"key":"l","path":"..p"}]}}]}`, `{"volumes":[{"name":"v","configMap":{"defaultMode":-1,"items":[{"key":"k","path":"/p"}]}}]}`,
	`{"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":""}},{"name":"w","persistentVolumeClaim":{"claimName":"a"}}]}`, `{"volumes":[{"name":"v","nfs":{"server":"","path":"a"}},{"name":"w","nfs":{"server":"s","path":"/"}}]}`,
	`{"volumes":[{"name":"v","downwardAPI":{"items":[{"path":"l","fieldRef":{"fieldPath":"metadata.labels"}},{"path":"r","resourceFieldRef":{"containerName":"c","resource":"limits.cpu","divisor":"1m"}}]}}]}`,
	`{"volumes":[{"name":"v","downwardAPI":{"defaultMode":600,"items":[{"path":""},{"path":"a","fieldRef":{"fieldPath":"spec.nodeName"}},{"path":"b","resourceFieldRef":{"resource":"limits.cpu"}},{"path":"c","resourceFieldRef":{"containerName":"c","resource":"other"}}]}}]}`,
	`{"volumes":[{"name":"v","projected":{"sources":[{"configMap":{"name":"a"}},{"secret":{"name":"s","items":[{"key":"k","path":"p"}]}},{"downwardAPI":{"items":[{"path":"p","fieldRef":{"fieldPath":"metadata.name"}}]}}]}}]}`,
	`{"volumes":[{"name":"v","projected":{"defaultMode":1000,"sources":[{"serviceAccountToken":{"path":"t","expirationSeconds":60}},{"configMap":{},"secret":{}}]}}]}`,
	`{"serviceAccountName":"default","volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"t"}},{"serviceAccountToken":{"path":"/x"}}]}}]}`,
	`{"volumes":[{"name":"v","ephemeral":{}},{"name":"w","csi":{"driver":"a.b"}},{"name":"x","csi":{"driver":"-"}}]}`,
}

// containerParts are fields of containers.
var containerParts = []string{
	`{"imagePullPolicy":"Never"}`, `{"imagePullPolicy":"Other"}`, `{"terminationMessagePolicy":"FallbackToLogsOnError"}`, `{"terminationMessagePolicy":"Other"}`, `{"image":" i "}`, `{"name":"C_"}`, `{"name":""}`,
	`{"command":["a"],"args":["b"],"workingDir":"/","stdin":true,"tty":true}`, `{"restartPolicy":"Always"}`, `{"restartPolicy":"Never"}`, `{"restartPolicy":"Other"}`,
	`{"restartPolicyRules":[{"action":"Restart","exitCodes":{"operator":"In","values":[1]}}]}`, `{"restartPolicy":"Never","restartPolicyRules":[{"action":"Other"},{"action":"Restart","exitCodes":{"operator":"Near","values":[1]}}]}`,
	// ports
	`{"ports":[{"containerPort":80,"hostPort":80},{"containerPort":80,"hostPort":80}]}`, `{"ports":[{"containerPort":0},{"containerPort":70000,"hostPort":-1}]}`, `{"ports":[{"containerPort":80,"name":"a"},{"containerPort":81,"name":"a"}]}`,
	`{"ports":[{"containerPort":80,"name":"Not-A-Name-Of-A-Port","protocol":"SCTP"},{"containerPort":82,"protocol":"Other"}]}`, `{"ports":[{"containerPort":80,"hostPort":81,"hostIP":"127.0.0.1"}]}`,
	// environment
	`{"env":[{"name":""},{"name":"a=b"},{"name":"B","valueFrom":{}}]}`, `{"env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['app']"}}}]}`,
	`{"env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"spec.other"}}},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"status.phase"}}},{"name":"C","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['-']"}}},{"name":"D","valueFrom":{"fieldRef":{"fieldPath":"spec.x['a']"}}}]}`,
	`{"env":[{"name":"A","value":"x","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}},{"name":"B","valueFrom":{"configMapKeyRef":{"name":"A_","key":""}}},{"name":"C","valueFrom":{"secretKeyRef":{"name":"s","key":"a b"},"configMapKeyRef":{"name":"c","key":"k"}}}]}`,
	`{"env":[{"name":"A","valueFrom":{"resourceFieldRef":{"resource":"limits.memory","divisor":"1Mi"}}},{"name":"B","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"3"}}},{"name":"C","valueFrom":{"resourceFieldRef":{"resource":"other"}}}]}`,
	`{"envFrom":[{"configMapRef":{"name":"a"}},{"prefix":"p","secretRef":{"name":"s","optional":true}}]}`, `{"envFrom":[{},{"prefix":"=","configMapRef":{"name":"A"},"secretRef":{"name":""}}]}`,
	// mounts
	`{"volumeMounts":[{"name":"v","mountPath":"/v","readOnly":true},{"name":"w","mountPath":"/w","subPath":"a"}]}`, `{"volumeMounts":[{"name":"","mountPath":""},{"name":"missing","mountPath":"/a"},{"name":"v","mountPath":"/a","subPath":"../a","subPathExpr":"/b"}]}`,
	`{"volumeMounts":[{"name":"v","mountPath":"/v","mountPropagation":"Bidirectional"},{"name":"v","mountPath":"/w","mountPropagation":"Other"}]}`, `{"volumeMounts":[{"name":"v","mountPath":"/v","recursiveReadOnly":"Enabled"},{"name":"v","mountPath":"/w","recursiveReadOnly":"Other"}]}`,
	// probes and hooks
	`{"livenessProbe":{"tcpSocket":{"port":"http"},"initialDelaySeconds":1},"startupProbe":{"exec":{"command":["a"]},"failureThreshold":30}}`, `{"livenessProbe":{"httpGet":{"port":0,"scheme":"OTHER","httpHeaders":[{"name":"a b","value":"c"}]},"successThreshold":2}}`,
	`{"readinessProbe":{"exec":{},"tcpSocket":{"port":80},"periodSeconds":-1,"terminationGracePeriodSeconds":5}}`, `{"startupProbe":{"grpc":{"port":70000},"terminationGracePeriodSeconds":0,"timeoutSeconds":-2}}`, `{"livenessProbe":{}}`,
	`{"readinessProbe":{"grpc":{"port":1},"successThreshold":3}}`, `{"lifecycle":{"preStop":{"sleep":{"seconds":1}},"postStart":{"httpGet":{"port":"Not_A_Port"}}}}`, `{"lifecycle":{"preStop":{"sleep":{"seconds":100}},"postStart":{}}}`,
	// resources
	`{"resources":{"requests":{"memory":"-1"},"limits":{"cpu":"-1"}}}`, `{"resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}}`, `{"resources":{"limits":{"example.com/gpu":"1"}}}`, `{"resources":{"requests":{"example.com/gpu":"1"}}}`,
	`{"resources":{"requests":{"example.com/gpu":"500m"},"limits":{"example.com/gpu":"1500m"}}}`, `{"resources":{"requests":{"pods":"1","other":"1","a b":"1"}}}`, `{"resources":{"limits":{"hugepages-2Mi":"2Mi"}}}`, `{"resources":{"limits":{"cpu":"1","hugepages-2Mi":"4Mi"}}}`,
	`{"resources":{"limits":{"requests.example.com/a":"1","kubernetes.io/b":"1","memory":"1Gi","ephemeral-storage":"1Gi"}}}`, `{"resizePolicy":[{"resourceName":"cpu","restartPolicy":"NotRequired"}]}`, `{"resizePolicy":[{"resourceName":"cpu","restartPolicy":"RestartContainer"},{"resourceName":"cpu","restartPolicy":"Other"},{"resourceName":"x","restartPolicy":"NotRequired"}]}`,
	// security
	`{"securityContext":{"privileged":true,"allowPrivilegeEscalation":false}}`, `{"securityContext":{"runAsUser":-1,"runAsGroup":5,"readOnlyRootFilesystem":true,"capabilities":{"drop":["ALL"]}}}`, `{"securityContext":{"procMount":"Unmasked"}}`,
	`{"securityContext":{"procMount":"Other","seccompProfile":{"type":"Localhost","localhostProfile":"../a"},"appArmorProfile":{"type":"Localhost","localhostProfile":" a"}}}`, `{"securityContext":{"appArmorProfile":{"type":"Other"},"seccompProfile":{}}}`,
}

// resizeParts are fields of containers that are resized.
var resizeParts = []string{
	`{"resources":{"requests":{"cpu":"300m"}}}`, `{"resources":{"requests":{"cpu":"300m"},"limits":{"cpu":"2","memory":"128Mi"}}}`, `{"resources":{"limits":{"cpu":"2","memory":"128Mi"}}}`, `{"resources":{"requests":{"cpu":"200m"},"limits":{"cpu":"2"}}}`,
	`{"resources":{"requests":{"memory":"1Gi"}}}`, `{"resources":{"requests":{"cpu":"-1"}}}`, `{"resources":{"requests":{"cpu":"3"},"limits":{"cpu":"2"}}}`, `{"resources":{"limits":{"example.com/gpu":"2"}}}`, `{"resources":null}`, `{"resources":{"limits":{"cpu":"1","memory":"64Mi"}}}`,
	`{"resizePolicy":[{"resourceName":"cpu","restartPolicy":"RestartContainer"}]}`, `{"image":"other"}`, `{}`,
}

var podStatusParts = []string{
	`{"conditions":[{"type":"Ready","status":"True"},{"type":"example.com/c","status":"False","reason":"R"}]}`, `{"conditions":[{"type":"a b","status":"True","observedGeneration":-1}]}`, `{"nominatedNodeName":"n9"}`, `{"nominatedNodeName":"N 9"}`,
	`{"observedGeneration":1}`, `{"observedGeneration":-1}`, `{"qosClass":"Guaranteed"}`, `{"podIP":"10.0.0.1"}`, `{"podIP":"x","podIPs":[{"ip":"x"}]}`, `{"podIPs":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}]}`, `{"podIPs":[{"ip":"10.0.0.1"},{"ip":"::1"}]}`, `{"hostIP":"1.2.3.4","hostIPs":[{"ip":"1.2.3.5"}]}`,
	`{"containerStatuses":[{"name":"c","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"terminated":{"exitCode":1}}}]}`, `{"containerStatuses":[{"name":"c","image":"i","imageID":"","ready":true,"restartCount":1,"state":{"running":{}}}]}`,
	`{"containerStatuses":[{"name":"c","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"terminated":{"exitCode":0}}}]}`, `{"phase":"Running","reason":"r","startTime":"2026-01-01T00:00:00Z"}`, `{"phase":"Other"}`,
}

var nodeParts = []string{
	`{"taints":[{"key":"k","effect":"NoSchedule"},{"key":"k","value":"v","effect":"NoExecute"}]}`, `{"taints":[{"key":"k","effect":"NoSchedule"},{"key":"k","value":"v","effect":"NoSchedule"}]}`, `{"taints":[{"key":"-","value":"a b","effect":"Other"},{"key":"k"}]}`,
	`{"unschedulable":true}`, `{"providerID":"p"}`, `{"providerID":"q"}`, `{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"]}`, `{"podCIDRs":["x"]}`, `{}`,
	`{"podCIDRs":["10.0.0.0/24","10.1.0.0/24"]}`, `{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24","fd00::/64"]}`, `{"configSource":{"configMap":{"name":"a"}}}`,
}

var nodeStatusParts = []string{
	`{"capacity":{"cpu":"4","memory":"8Gi","pods":"110"}}`, `{"capacity":{"cpu":"-1","pods":"500m","example.com/a":"100m"}}`, `{"allocatable":{"cpu":"2","memory":"-1"}}`, `{"conditions":[{"type":"Ready","status":"True"}]}`, `{"conditions":[{"type":"MemoryPressure","status":"True"},{"type":"Ready","status":"False"}]}`,
	`{"addresses":[{"type":"InternalIP","address":"1.2.3.4"},{"type":"Hostname","address":"h"}]}`, `{"addresses":[{"type":"InternalIP","address":"1.2.3.4"},{"type":"InternalIP","address":"1.2.3.4"}]}`, `{"images":[{"names":["i"],"sizeBytes":5}]}`, `{"volumesInUse":["v"]}`, `{"declaredFeatures":["A","Bc/dE"]}`, `{"declaredFeatures":["B","B","A","a b"]}`,
}

var budgetParts = []string{
	`{"minAvailable":1,"selector":{"matchLabels":{"app":"a"}}}`, `{"maxUnavailable":"50%"}`, `{"minAvailable":-1}`, `{"minAvailable":"120%"}`, `{"maxUnavailable":"x"}`, `{"minAvailable":1,"maxUnavailable":1}`, `{"selector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}`,
	`{"unhealthyPodEvictionPolicy":"AlwaysAllow"}`, `{"unhealthyPodEvictionPolicy":"Other"}`, `{"selector":{"matchLabels":{"-":"a b"}}}`, `{}`,
}

var deploymentParts = []string{
	`{"replicas":-1}`, `{"minReadySeconds":-1}`, `{"minReadySeconds":700}`, `{"progressDeadlineSeconds":-1}`, `{"revisionHistoryLimit":-1}`, `{"revisionHistoryLimit":2}`, `{"strategy":{"type":"Other"}}`,
	`{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":"0%"}}}`, `{"strategy":{"rollingUpdate":{"maxSurge":"x","maxUnavailable":"120%"}}}`, `{"strategy":{"rollingUpdate":{"maxSurge":"150%","maxUnavailable":-1}}}`,
	`{"selector":{"matchExpressions":[{"key":"app","operator":"In","values":["a"]}]}}`, `{"selector":{}}`,
}

var replicaSetParts = []string{`{"replicas":-1}`, `{"minReadySeconds":-1}`, `{"replicas":2}`, `{"selector":{}}`}

var statefulSetParts = []string{
	`{"podManagementPolicy":"Parallel"}`, `{"podManagementPolicy":"Other"}`, `{"serviceName":"s"}`, `{"serviceName":"S.s"}`, `{"ordinals":{"start":-1}}`, `{"updateStrategy":{"type":"OnDelete"}}`, `{"updateStrategy":{"type":"Other"}}`, `{"minReadySeconds":-1,"replicas":-2}`,
	`{"updateStrategy":{"type":"OnDelete","rollingUpdate":{"partition":1}}}`, `{"updateStrategy":{"rollingUpdate":{"partition":-1}}}`,
}

var daemonSetParts = []string{
	`{"updateStrategy":{"type":"OnDelete"}}`, `{"updateStrategy":{"type":"Other"}}`, `{"updateStrategy":{"rollingUpdate":{"maxUnavailable":1,"maxSurge":1}}}`, `{"updateStrategy":{"rollingUpdate":{"maxUnavailable":0}}}`, `{"updateStrategy":{"rollingUpdate":{"maxUnavailable":"200%"}}}`,
	`{"updateStrategy":{"rollingUpdate":{"maxUnavailable":0,"maxSurge":"10%"}}}`, `{"minReadySeconds":-1,"revisionHistoryLimit":-1}`,
}

var jobParts = []string{
	`{"parallelism":-1}`, `{"completions":-1}`, `{"backoffLimit":-1}`, `{"activeDeadlineSeconds":-1}`, `{"ttlSecondsAfterFinished":-1}`, `{"completionMode":"Indexed"}`, `{"completionMode":"Indexed","completions":1}`, `{"completionMode":"Other"}`, `{"completionMode":"Indexed","completions":null}`, `{"suspend":true,"backoffLimit":0}`,
	`{"backoffLimitPerIndex":1}`, `{"completionMode":"Indexed","backoffLimitPerIndex":1,"maxFailedIndexes":1}`,
}

var priorityParts = []string{`{"value":5}`, `{"value":2000000000}`, `{"value":1,"preemptionPolicy":"Never"}`, `{"value":1,"preemptionPolicy":"Other"}`, `{"value":5,"description":"d"}`, `{}`}

// part is one of the fields that a text has.
func (r random) part(of []string) object {
	var fields object
	if err := json.Unmarshal([]byte(pick(r, of...)), &fields); err != nil {
		panic(err)
	}
	return fields
}

// varied is a spec with parts of it replaced, mostly without.
func (r random) varied(spec object, of []string) object {
	for !r.chance(3) {
		if r.chance(2) {
			break
		}
		maps.Copy(spec, r.part(of))
	}
	return spec
}

// clusterScoped are the kinds without a namespace, whose names begin with that of the world.
var clusterScoped = []string{"nodes", "priorityclasses"}

func isClusterScoped(kind string) bool { return slices.Contains(clusterScoped, kind) }
