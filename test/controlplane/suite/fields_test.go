package suite_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/evictd/evictd/internal/require"
)

// fields are parts of objects, right and wrong ones, by the paths of their kinds in {ns}. Kinds that random
// requests make have theirs in parts_test.go.
var fields = map[string][]string{
	"/api/v1/namespaces/{ns}/services": {
		`{"spec":{"clusterIP":null}}`, `{"spec":{"clusterIP":""}}`, `{"spec":{"ports":[{"port":80}]}}`, `{"spec":{"ports":[{"port":0},{"port":80,"name":"a","protocol":"SCTP"}]}}`, `{"spec":{"ports":[{"port":80,"name":"a"},{"port":80,"name":"a"}]}}`,
		`{"spec":{"ports":[{"port":80,"name":"A_","targetPort":"http"}]}}`, `{"spec":{"ports":[{"port":80,"targetPort":"not a port"}]}}`, `{"spec":{"ports":[{"port":80,"targetPort":70000,"protocol":"X","appProtocol":"a b"}]}}`,
		`{"spec":{"ports":[{"port":80,"nodePort":30000}]}}`, `{"spec":{"selector":{"a":"b"}}}`, `{"spec":{"selector":{"-":"a b"}}}`, `{"spec":{"sessionAffinity":"ClientIP"}}`, `{"spec":{"sessionAffinity":"Other"}}`,
		`{"spec":{"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":0}}}}`, `{"spec":{"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":100000}}}}`,
		`{"spec":{"externalIPs":["1.2.3.4","x","127.0.0.1","0.0.0.0","169.254.1.1"]}}`, `{"spec":{"type":"Other"}}`, `{"spec":{"type":"ExternalName","externalName":"a.b"}}`, `{"spec":{"type":"ExternalName","clusterIP":null,"externalName":"a.b."}}`,
		`{"spec":{"type":"ExternalName","clusterIP":null}}`, `{"spec":{"type":"ExternalName","clusterIP":null,"externalName":"A_","ipFamilyPolicy":"SingleStack"}}`, `{"spec":{"type":"NodePort","ports":[{"port":80}]}}`, `{"spec":{"type":"LoadBalancer","ports":[{"port":80}]}}`,
		`{"spec":{"loadBalancerSourceRanges":["10.0.0.0/8"]}}`, `{"spec":{"allocateLoadBalancerNodePorts":true,"loadBalancerClass":"a/b"}}`, `{"spec":{"externalTrafficPolicy":"Local"}}`, `{"spec":{"internalTrafficPolicy":"Local"}}`, `{"spec":{"internalTrafficPolicy":"Other"}}`,
		`{"spec":{"trafficDistribution":"PreferClose"}}`, `{"spec":{"trafficDistribution":"Other"}}`, `{"spec":{"healthCheckNodePort":30001}}`, `{"spec":{"publishNotReadyAddresses":true}}`, `{"spec":{"ipFamilies":["IPv6"]}}`, `{"spec":{"ipFamilies":["IPv4","IPv4"]}}`,
		`{"spec":{"ipFamilies":["Other"]}}`, `{"spec":{"ipFamilyPolicy":"PreferDualStack"}}`, `{"spec":{"ipFamilyPolicy":"RequireDualStack"}}`, `{"spec":{"ipFamilyPolicy":"Other"}}`, `{"spec":{"clusterIPs":["None","1.2.3.4"]}}`, `{"spec":{"clusterIP":"x","ports":[{"port":80}]}}`,
		`{"spec":{"clusterIP":"10.0.0.9","clusterIPs":["10.0.0.8"],"ports":[{"port":80}]}}`, `{"spec":{"externalName":"a.b"}}`,
		`{"spec":{"ipFamilies":null}}`, `{"metadata":{"name":"A_b"},"spec":{"clusterIPs":["None","1.2.3.4"]}}`, `{"spec":{"ipFamilyPolicy":"SingleStack"}}`, `{"spec":{"ipFamilies":["IPv4","IPv6"],"ipFamilyPolicy":"SingleStack","clusterIP":"1.2.3.4","clusterIPs":["1.2.3.4","1::2"]}}`,
		`{"spec":{"ipFamilyPolicy":"PreferDualStack","ipFamilies":["IPv4"],"selector":{"a":"b"}}}`, `{"spec":{"clusterIPs":["1::2"],"clusterIP":"1::2"}}`,
	},
	"/api/v1/namespaces/{ns}/secrets": {
		`{"data":{"a":"YQ=="}}`, `{"stringData":{"a":"b"}}`, `{"stringData":{"a b":"b"}}`, `{"type":"kubernetes.io/tls"}`, `{"type":"kubernetes.io/tls","stringData":{"tls.crt":"","tls.key":""}}`, `{"type":"kubernetes.io/ssh-auth"}`,
		`{"type":"kubernetes.io/ssh-auth","stringData":{"ssh-privatekey":"k"}}`, `{"type":"kubernetes.io/basic-auth"}`, `{"type":"kubernetes.io/basic-auth","stringData":{"username":"u"}}`, `{"type":"kubernetes.io/dockercfg","stringData":{".dockercfg":"x"}}`,
		`{"type":"kubernetes.io/dockercfg"}`, `{"type":"kubernetes.io/dockerconfigjson"}`, `{"type":"kubernetes.io/dockerconfigjson","stringData":{".dockerconfigjson":"{}"}}`, `{"type":"kubernetes.io/service-account-token"}`, `{"type":"other"}`, `{"immutable":true}`,
		`{"stringData":{"a":"` + large + `"}}`,
	},
	"/api/v1/namespaces/{ns}/configmaps": {`{"data":{"a b":"c"}}`, `{"data":{"a":"c"},"binaryData":{"a":"YQ=="}}`, `{"binaryData":{"-":"YQ=="}}`, `{"immutable":true}`, `{"data":{"a":"` + large + `"}}`, `{"data":{"..":"a"}}`},
	"/api/v1/namespaces/{ns}/endpoints": {
		`{"subsets":[{"addresses":[{"ip":"1.2.3.4","hostname":"a"}],"ports":[{"port":80}]}]}`, `{"subsets":[{"addresses":[{"ip":"x"},{"ip":"127.0.0.1"}],"ports":[{"port":0,"name":"A_","protocol":"X"}]}]}`, `{"subsets":[{}]}`,
		`{"subsets":[{"notReadyAddresses":[{"ip":"1.2.3.4","hostname":"A_","nodeName":"N_"}],"ports":[{"port":80},{"port":81}]}]}`,
	},
	"/api/v1/namespaces/{ns}/serviceaccounts":           {`{"automountServiceAccountToken":false}`, `{"imagePullSecrets":[{"name":"a"}]}`, `{"secrets":[{"name":"A_"}]}`},
	"/api/v1/namespaces":                                {`{"spec":{"finalizers":["a/b"]}}`, `{"spec":{"finalizers":["x"]}}`, `{"metadata":{"labels":{"kubernetes.io/metadata.name":"other"}}}`, `{"metadata":{"labels":{"-":"a"}}}`},
	"/api/v1/namespaces/{ns}/podtemplates":              {`{"template":{"metadata":{"labels":{"-":"a"}}}}`, `{"template":{"spec":{"containers":[]}}}`, `{"template":{"metadata":{"labels":{"a":"b"}}}}`, `{"template":{"spec":{"restartPolicy":"Never","volumes":[{"name":"A_","emptyDir":{}}]}}}`},
	"/api/v1/namespaces/{ns}/resourcequotas":            {`{"spec":{"hard":{"pods":"-1"}}}`, `{"spec":{"hard":{"a b":"1"}}}`, `{"spec":{"hard":{"other":"1"}}}`, `{"spec":{"hard":{"pods":"1.5"}}}`, `{"spec":{"scopes":["BestEffort"],"hard":{"pods":"1"}}}`, `{"spec":{"scopes":["BestEffort","NotBestEffort"]}}`, `{"spec":{"scopes":["Other"]}}`, `{"spec":{"scopeSelector":{"matchExpressions":[{"scopeName":"PriorityClass","operator":"In","values":["a"]}]}}}`, `{"spec":{"scopeSelector":{"matchExpressions":[{"scopeName":"BestEffort","operator":"In","values":["a"]},{"scopeName":"PriorityClass","operator":"Exists","values":["a"]},{"scopeName":"PriorityClass","operator":"In"}]}}}`},
	"/api/v1/namespaces/{ns}/replicationcontrollers":    {`{"spec":{"selector":{}}}`, `{"spec":{"selector":{"a":"c"}}}`, `{"spec":{"replicas":-1}}`, `{"spec":{"replicas":3}}`, `{"spec":{"template":null}}`, `{"spec":{"template":{"spec":{"restartPolicy":"Never"}}}}`},
	"/apis/apps/v1/namespaces/{ns}/controllerrevisions": {`{"revision":-1}`, `{"data":null}`, `{"data":{"a":"b"}}`, `{"revision":5}`},
	"/apis/batch/v1/namespaces/{ns}/jobs":               {`{"metadata":{"name":"a.b"},"spec":{"completionMode":"Indexed","completions":2}}`, `{"spec":{"completionMode":"Indexed","completions":2}}`, `{"spec":{"completions":2}}`},
	"/apis/batch/v1/namespaces/{ns}/cronjobs": {
		`{"spec":{"schedule":""}}`, `{"spec":{"schedule":"x"}}`, `{"spec":{"schedule":"@hourly"}}`, `{"spec":{"schedule":"*/5 1-2 * JAN mon"}}`, `{"spec":{"schedule":"61 * * * *"}}`, `{"spec":{"schedule":"* * * *"}}`, `{"spec":{"schedule":"TZ=UTC * * * * *"}}`, `{"spec":{"timeZone":"Europe/Berlin"}}`, `{"spec":{"timeZone":"Nowhere"}}`, `{"spec":{"timeZone":""}}`,
		`{"spec":{"timeZone":"Local"}}`, `{"spec":{"concurrencyPolicy":"Forbid"}}`, `{"spec":{"concurrencyPolicy":"Other"}}`, `{"spec":{"startingDeadlineSeconds":-1}}`, `{"spec":{"successfulJobsHistoryLimit":-1,"failedJobsHistoryLimit":-1}}`, `{"spec":{"suspend":true}}`, `{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Always"}}}}}}`,
		`{"spec":{"jobTemplate":{"spec":{"backoffLimit":-1,"selector":{"matchLabels":{"a":"b"}},"manualSelector":true}}}}`, `{"spec":{"schedule":"@every 1h"}}`, `{"spec":{"schedule":"0 0 31 2 *"}}`, `{"spec":{"schedule":"5-1 * * * *"}}`, `{"spec":{"schedule":"*/0 * * * ?"}}`,
	},
	"/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers": {
		`{"spec":{"minReplicas":0}}`, `{"spec":{"minReplicas":-1}}`, `{"spec":{"minReplicas":3}}`, `{"spec":{"maxReplicas":0}}`, `{"spec":{"scaleTargetRef":{"kind":"","name":""}}}`, `{"spec":{"scaleTargetRef":{"apiVersion":"v1"}}}`, `{"spec":{"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}]}}`,
		`{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":10}}}}`, `{"spec":{"scaleTargetRef":{"apiVersion":"v1","kind":"ReplicationController"}}}`, `{"spec":{"scaleTargetRef":{"apiVersion":"a/b/c","name":"a/b","kind":".."}}}`, `{"spec":{"maxReplicas":-1,"minReplicas":null}}`,
		`{"spec":{"behavior":{"scaleUp":{"stabilizationWindowSeconds":-1,"selectPolicy":"Other","tolerance":"-1","policies":[]},"scaleDown":{"stabilizationWindowSeconds":3601,"policies":[{"type":"Other","value":0,"periodSeconds":0},{"type":"Pods","value":1,"periodSeconds":1801},{"type":"Percent","value":-1,"periodSeconds":5}]}}}}`,
		`{"spec":{"minReplicas":0,"metrics":[{"type":"Object","object":{"describedObject":{"kind":"Service","name":"a"},"metric":{"name":"m"},"target":{"type":"Value","value":"5"}}}]}}`,
		`{"spec":{"metrics":[{"type":"Object","object":{"describedObject":{"apiVersion":"a/b/c","kind":"","name":"a/b"},"metric":{"name":""},"target":{"type":"","value":"-1","averageUtilization":0}}},{"type":"Object","object":{"describedObject":{"kind":"A","name":"a"},"metric":{"name":"a/b"},"target":{"type":"Other","averageValue":"0"}}}]}}`,
		`{"spec":{"metrics":[{"type":"External","external":{"metric":{"name":"m"},"target":{"type":"Value","value":"1","averageValue":"1"}}},{"type":"External","external":{"metric":{"name":"m"},"target":{"type":"Value"}}},{"type":"Pods","pods":{"metric":{"name":"m"},"target":{"type":"Value","value":"1"}}}]}}`,
		`{"spec":{"metrics":[{"type":"Resource","resource":{"name":"","target":{"type":"Utilization"}}},{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":5,"averageValue":"1"}}},{"type":"ContainerResource","containerResource":{"name":"","container":"","target":{"type":"Utilization","averageUtilization":5}}}]}}`,
		`{"spec":{"metrics":[{"type":"ContainerResource","containerResource":{"name":"other","container":"A_","target":{"type":"AverageValue","averageValue":"5"}}},{"type":"","resource":{"name":"cpu","target":{"type":"AverageValue","averageValue":"5"}}},{"type":"Other"}]}}`,
		`{"spec":{"metrics":[{"type":"Pods","resource":{"name":"cpu","target":{"type":"AverageValue","averageValue":"5"}},"external":{"metric":{"name":""},"target":{"type":"Value"}}},{"type":"Resource"}]}}`,
	},
	"/apis/coordination.k8s.io/v1/namespaces/{ns}/leases": {
		`{"spec":{"holderIdentity":"a","leaseDurationSeconds":10,"leaseTransitions":1}}`, `{"spec":{"leaseDurationSeconds":0}}`, `{"spec":{"leaseDurationSeconds":-1,"leaseTransitions":-1}}`, `{"spec":{"holderIdentity":""}}`, `{"spec":{"strategy":"OldestEmulationVersion"}}`,
		`{"spec":{"preferredHolder":"a"}}`, `{"spec":{"strategy":"A b"}}`,
	},
	"/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices": {
		`{"addressType":"IPv6"}`, `{"addressType":"Other"}`, `{"addressType":null}`, `{"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true},"hostname":"a","nodeName":"n"}],"ports":[{"port":80}]}`, `{"endpoints":[{"addresses":[]}]}`,
		`{"endpoints":[{"addresses":["x","127.0.0.1"],"hostname":"A_","nodeName":"N_","deprecatedTopology":{"kubernetes.io/hostname":"a"}}]}`, `{"ports":[{"port":80},{"port":81}]}`, `{"ports":[{"port":0,"protocol":"X","name":"A_"}]}`, `{"addressType":"FQDN","endpoints":[{"addresses":["a.b"]}]}`, `{"metadata":{"labels":{"a":"b"}}}`,
		`{"endpoints":[{"addresses":["10.0.0.1"],"deprecatedTopology":{"kubernetes.io/hostname":"a"}}]}`,
	},
	"/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies": {
		`{"spec":{"podSelector":{"matchLabels":{"-":"a"}}}}`, `{"spec":{"ingress":[{"from":[{"podSelector":{}}],"ports":[{"port":80}]}]}}`, `{"spec":{"egress":[{"to":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}]}]}}`, `{"spec":{"policyTypes":["Other"]}}`,
		`{"spec":{"policyTypes":["Egress"]}}`, `{"spec":{"policyTypes":["Egress","Ingress","Other"]}}`, `{"spec":{"ingress":[{"ports":[{"port":0,"protocol":"X"},{"port":80,"endPort":79},{"port":"http","endPort":5},{"port":"A_"},{"endPort":5},{"port":80,"endPort":70000},{"port":"http","protocol":"SCTP"},{"port":80,"endPort":81}]}]}}`,
		`{"spec":{"egress":[{"ports":[{"port":70000}],"to":[{},{"podSelector":{"matchLabels":{"-":"a"}},"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Near"}]}},{"podSelector":{},"ipBlock":{"cidr":"x"}},{"ipBlock":{"cidr":""}},{"ipBlock":{"cidr":"x","except":["y"]}}]}]}}`,
		`{"spec":{"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["x","10.0.0.0/8","11.0.0.0/16","fd00::/64","10.5.0.0/16"]}},{"ipBlock":{"cidr":"fd00::/48","except":["fd00::/64"]}}]}]}}`,
	},
	"/apis/node.k8s.io/v1/runtimeclasses": {`{"handler":"other"}`, `{"handler":"A_"}`, `{"handler":""}`, `{"scheduling":{"nodeSelector":{"-":"a"}}}`, `{"scheduling":{"tolerations":[{"key":"k","operator":"Other"}]}}`, `{"overhead":{"podFixed":{"cpu":"1"}},"scheduling":{"nodeSelector":{"a":"b"}}}`},
	"/apis/storage.k8s.io/v1/storageclasses": {
		`{"provisioner":""}`, `{"provisioner":"A b"}`, `{"reclaimPolicy":"Other"}`, `{"reclaimPolicy":"Retain"}`, `{"reclaimPolicy":"Recycle"}`, `{"volumeBindingMode":"WaitForFirstConsumer"}`, `{"volumeBindingMode":"Other"}`, `{"parameters":{"a":"b"}}`, `{"parameters":{"":"b"}}`,
		`{"allowedTopologies":[{"matchLabelExpressions":[{"key":"zone","values":["a"]}]}]}`, `{"allowedTopologies":[{"matchLabelExpressions":[{"key":"-","values":[]}]}]}`, `{"allowVolumeExpansion":true}`, `{"mountOptions":["a"]}`,
	},
	"/apis/storage.k8s.io/v1/volumeattributesclasses":              {`{"driverName":""}`, `{"driverName":"A b"}`, `{"driverName":"other"}`, `{"parameters":{}}`, `{"parameters":{"a":"c"}}`},
	"/apis/storage.k8s.io/v1/csidrivers":                           {`{"spec":{"attachRequired":false}}`, `{"spec":{"podInfoOnMount":true}}`, `{"spec":{"fsGroupPolicy":"Other"}}`, `{"spec":{"fsGroupPolicy":"File"}}`, `{"spec":{"volumeLifecycleModes":["Ephemeral"]}}`, `{"spec":{"volumeLifecycleModes":["Other"]}}`, `{"spec":{"tokenRequests":[{"audience":"a","expirationSeconds":5}]}}`, `{"spec":{"tokenRequests":[{"audience":"a"},{"audience":"a"}]}}`, `{"spec":{"storageCapacity":true,"requiresRepublish":true,"seLinuxMount":true}}`},
	"/apis/storage.k8s.io/v1/csinodes":                             {`{"spec":{"drivers":[{"name":"a","nodeID":"n","topologyKeys":["zone"],"allocatable":{"count":5}}]}}`, `{"spec":{"drivers":[{"name":"","nodeID":""}]}}`, `{"spec":{"drivers":[{"name":"A_","nodeID":"n","topologyKeys":["-","zone","zone"],"allocatable":{"count":-1}}]}}`, `{"spec":{"drivers":[{"name":"a","nodeID":"n","topologyKeys":null},{"name":"a","nodeID":"n","topologyKeys":null}]}}`},
	"/apis/storage.k8s.io/v1/namespaces/{ns}/csistoragecapacities": {`{"storageClassName":""}`, `{"storageClassName":"A_"}`, `{"storageClassName":"other"}`, `{"capacity":"-1"}`, `{"capacity":"1Gi","maximumVolumeSize":"2Gi"}`, `{"maximumVolumeSize":"-1"}`, `{"nodeTopology":{"matchLabels":{"-":"a"}}}`, `{"nodeTopology":{"matchLabels":{"a":"b"}}}`},
	"/apis/storage.k8s.io/v1/volumeattachments":                    {`{"spec":{"attacher":""}}`, `{"spec":{"attacher":"A b"}}`, `{"spec":{"nodeName":""}}`, `{"spec":{"nodeName":"N_"}}`, `{"spec":{"source":{"persistentVolumeName":null}}}`, `{"spec":{"source":{"persistentVolumeName":"A_"}}}`, `{"spec":{"nodeName":"other"}}`},
	"/api/v1/persistentvolumes": {
		`{"spec":{"capacity":{}}}`, `{"spec":{"capacity":{"storage":"0"}}}`, `{"spec":{"capacity":{"storage":"1Gi","cpu":"1"}}}`, `{"spec":{"accessModes":[]}}`, `{"spec":{"accessModes":["Other"]}}`, `{"spec":{"accessModes":["ReadWriteOncePod","ReadWriteOnce"]}}`, `{"spec":{"hostPath":null}}`, `{"spec":{"hostPath":{"path":"/../a"}}}`,
		`{"spec":{"local":{"path":"/a"}}}`, `{"spec":{"hostPath":null,"local":{"path":"/a"}}}`, `{"spec":{"hostPath":null,"nfs":{"server":"","path":"a"}}}`, `{"spec":{"hostPath":null,"csi":{"driver":"a","volumeHandle":""}}}`, `{"spec":{"hostPath":null,"csi":{"driver":"a","volumeHandle":"h"}}}`, `{"spec":{"persistentVolumeReclaimPolicy":"Other"}}`,
		`{"spec":{"persistentVolumeReclaimPolicy":"Recycle","hostPath":{"path":"/"}}}`, `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`, `{"spec":{"storageClassName":"A_"}}`, `{"spec":{"storageClassName":"fast"}}`, `{"spec":{"volumeMode":"Block"}}`, `{"spec":{"volumeMode":"Other"}}`, `{"spec":{"mountOptions":["a"]}}`, `{"spec":{"capacity":{"storage":"2Gi"}}}`,
		`{"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}]}}}}`, `{"spec":{"nodeAffinity":{}}}`, `{"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"-","operator":"Near"}]}]}}}}`, `{"spec":{"claimRef":{"kind":"PersistentVolumeClaim","namespace":"a","name":"b"}}}`,
	},
	"/api/v1/namespaces/{ns}/persistentvolumeclaims": {
		`{"spec":{"accessModes":["Other"]}}`, `{"spec":{"accessModes":["ReadWriteOncePod","ReadWriteOnce"]}}`, `{"spec":{"accessModes":["ReadWriteMany"]}}`, `{"spec":{"volumeMode":"Block"}}`, `{"spec":{"volumeMode":"Other"}}`, `{"spec":{"storageClassName":"A_"}}`, `{"spec":{"storageClassName":"fast"}}`, `{"spec":{"selector":{"matchLabels":{"-":"a"}}}}`,
		`{"spec":{"dataSource":{"kind":"PersistentVolumeClaim","name":"b"}}}`, `{"spec":{"dataSource":{"kind":"","name":""}}}`, `{"spec":{"dataSourceRef":{"apiGroup":"a.b","kind":"X","name":"b"}}}`, `{"spec":{"volumeName":"v"}}`, `{"spec":{"resources":{"requests":{"storage":"-1"}}}}`, `{"spec":{"volumeAttributesClassName":"A_"}}`, `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`,
	},
	"/apis/resource.k8s.io/v1/deviceclasses":                          {`{"spec":{"selectors":[{"cel":{"expression":"device.driver == \"a\""}}]}}`, `{"spec":{"selectors":[{"cel":{"expression":"device.driver =="}},{"cel":{"expression":"device.other"}},{"cel":{"expression":"1"}}]}}`, `{"spec":{"selectors":[{}]}}`, `{"spec":{"config":[{"opaque":{"driver":"a","parameters":{"a":"b"}}}]}}`, `{"spec":{"config":[{"opaque":{"driver":"A_"}}]}}`, `{"spec":{"extendedResourceName":"a.b/c"}}`, `{"spec":{"extendedResourceName":"cpu"}}`},
	"/apis/resource.k8s.io/v1/devicetaintrules":                       {`{"spec":{"taint":{"effect":"Other"}}}`, `{"spec":{"taint":{"key":""}}}`, `{"spec":{"taint":{"key":"-","value":"a b"}}}`, `{"spec":{"taint":{"effect":"NoExecute"}}}`, `{"spec":{"deviceSelector":{"driver":"A_","pool":"A b","device":"A_"}}}`, `{"spec":{"deviceSelector":null}}`},
	"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims":         claimFields("spec"),
	"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaimtemplates": claimFields("spec", "spec"),
	"/apis/resource.k8s.io/v1/resourceslices": {`{"spec":{"nodeName":"N_"}}`, `{"spec":{"nodeName":"other"}}`, `{"spec":{"nodeName":null}}`, `{"spec":{"allNodes":true}}`, `{"spec":{"driver":"A_"}}`, `{"spec":{"driver":"other"}}`, `{"spec":{"pool":{"name":"","resourceSliceCount":0,"generation":-1}}}`, `{"spec":{"pool":{"name":"other"}}}`,
		`{"spec":{"nodeName":""}}`, `{"spec":{"allNodes":false,"perDeviceNodeSelection":false}}`, `{"spec":{"nodeName":null,"nodeSelector":{"nodeSelectorTerms":[]}}}`, `{"spec":{"nodeSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Near"}]}]}}}`, `{"spec":{"sharedCounters":[{"name":"a","counters":{"m":{"value":"1"}}}]}}`,
		`{"spec":{"sharedCounters":[{"name":"","counters":{}},{"name":"A_","counters":{"B_":{"value":"1"}}},{"name":"a","counters":{"m":{"value":"1"}}},{"name":"a","counters":{"m":{"value":"1"}}}],"devices":[{"name":"d"}]}}`,
		`{"spec":{"nodeName":null,"perDeviceNodeSelection":true,"devices":[{"name":"a"},{"name":"b","nodeName":"N_"},{"name":"c","nodeName":"","allNodes":false},{"name":"d","allNodes":true,"nodeName":"n"},{"name":"e","nodeSelector":{"nodeSelectorTerms":[]}},{"name":"f","allNodes":true}]}}`,
		`{"spec":{"devices":[{"name":"a","nodeName":"n"},{"name":"b","consumesCounters":[{"counterSet":"","counters":{}},{"counterSet":"A_","counters":{"B_":{"value":"1"}},"compatibilityGroups":["a"]}]},{"name":"c","consumesCounters":[{"counterSet":"s","counters":{"m":{"value":"1"}}},{"counterSet":"s","counters":{"m":{"value":"1"}}}]}]}}`,
		`{"spec":{"devices":[{"name":"a","attributes":{"A-":{"int":1},"a/b/c":{"int":1},"/b":{"int":1},"a.b/":{"bool":true},"A_/x":{"bool":true},"b":{},"c":{"int":1,"bool":true},"d":{"version":"1.2"},"e":{"version":"1.2.3-a.1+b.c"},"f":{"string":"` + strings.Repeat("a", 65) + `"},"g":{"version":"01.2.3"},"h":{"strings":["a"]},"` + strings.Repeat("a", 33) + `":{"int":2}}}]}}`,
		`{"spec":{"devices":[{"name":"a","bindingConditions":["a/b","a/b","-"],"bindingFailureConditions":["a/b","c"]},{"name":"b","bindingConditions":["a"]},{"name":"c","bindingFailureConditions":["a"]},{"name":"d","bindsToNode":true,"bindingConditions":["a"],"bindingFailureConditions":["b"]},{"name":"e","bindingConditions":["a","b","c","d","e"],"bindingFailureConditions":["f"]}]}}`,
		`{"spec":{"devices":[{"name":"a","capacity":{"d":{"value":"1","requestPolicy":{"default":"1"}},"-":{"value":"1"}}},{"name":"b","allowMultipleAllocations":true,"capacity":{"d":{"value":"4","requestPolicy":{"default":"5","validValues":["1","3","2","2","8"]}},"e":{"value":"4","requestPolicy":{"validValues":["1"]}},"f":{"value":"4","requestPolicy":{"default":"1","validValues":["1"],"validRange":{"min":"1"}}}}}]}}`,
		`{"spec":{"devices":[{"name":"a","allowMultipleAllocations":true,"capacity":{"a":{"value":"4","requestPolicy":{"default":"1","validRange":{}}},"b":{"value":"4","requestPolicy":{"validRange":{"min":"1"}}},"c":{"value":"4","requestPolicy":{"default":"1","validRange":{"min":"5","max":"3","step":"0"}}},"d":{"value":"4","requestPolicy":{"default":"9","validRange":{"min":"1","max":"8","step":"5"}}},"e":{"value":"10","requestPolicy":{"default":"3","validRange":{"min":"1","max":"9","step":"3"}}},"f":{"value":"4","requestPolicy":{"default":"1","validRange":{"min":"1","step":"100u"}}},"g":{"value":"4","requestPolicy":{"default":"1","validRange":{"min":"-1","max":"3","step":"2"}}},"h":{"value":"4","requestPolicy":{"default":"1500m","validRange":{"min":"500m","max":"4","step":"500m"}}}}}]}}`,
		`{"spec":{"partitionTypeAttribute":"a","skipNodeOperations":["NodePrepareResources"],"devices":[{"name":"a","nodeAllocatableResources":{"x":{}}}]}}`,
		`{"spec":{"devices":[{"name":"a","attributes":{"b":{"string":"c"}},"capacity":{"d":{"value":"1"}}}]}}`, `{"spec":{"devices":[{"name":"A_"},{"name":"a"},{"name":"a"}]}}`, `{"spec":{"devices":[{"name":"a","taints":[{"key":"k","effect":"Other"}]}]}}`},
}

var large = strings.Repeat("a", 1<<20+1)

// claimFields are parts of the spec of a ResourceClaim, at a path.
func claimFields(at ...string) (parts []string) {
	for _, devices := range []string{
		`{"requests":[{"name":"a","exactly":{"deviceClassName":"c"}}]}`, `{"requests":[{"name":"a","exactly":{"deviceClassName":"c","allocationMode":"All"}}]}`, `{"requests":[{"name":"a","exactly":{"deviceClassName":"c","allocationMode":"Other"}}]}`,
		`{"requests":[{"name":"a"}]}`, `{"requests":[{"name":"A_","exactly":{"deviceClassName":""}},{"name":"b","exactly":{"deviceClassName":"A_","count":-1}}]}`, `{"requests":[{"name":"a","exactly":{"deviceClassName":"c"}},{"name":"a","exactly":{"deviceClassName":"c"}}]}`,
		`{"requests":[{"name":"a","firstAvailable":[{"name":"x","deviceClassName":"c"},{"name":"x","deviceClassName":"c","count":2}]}]}`, `{"requests":[{"name":"a","exactly":{"deviceClassName":"c"},"firstAvailable":[{"name":"x","deviceClassName":"c"}]}]}`,
		`{"requests":[{"name":"a","exactly":{"deviceClassName":"c"}}],"constraints":[{"requests":["b"],"matchAttribute":"a.b/c"},{"requests":["a"]},{"matchAttribute":"x"}]}`, `{"requests":[{"name":"a","exactly":{"deviceClassName":"c"}}],"config":[{"requests":["b"],"opaque":{"driver":"A_","parameters":{"a":"b"}}},{}]}`,
		`{"requests":[{"name":"a","exactly":{"deviceClassName":"c","allocationMode":"All","count":2,"tolerations":[{"key":"k","operator":"Exists"},{"key":"-","operator":"Other","effect":"Other"},{"operator":"Equal","value":"a b"}]}}]}`,
	} {
		part := `{"devices":` + devices + `}`
		for _, name := range at {
			part = `{"` + name + `":` + part + `}`
		}
		parts = append(parts, part)
	}
	return parts
}

// TestEveryFieldOfEveryKindIsCheckedAndDefaulted makes an object with each part, and changes an object by it.
func TestEveryFieldOfEveryKindIsCheckedAndDefaulted(t *testing.T) {
	compareKinds(t, "fields", func(s *side, path string, body object, _ bool, kept map[string]string) (answers []any) {
		body["metadata"] = object{"name": "a"}
		whole, err := json.Marshal(body)
		require.NoError(t, err)
		ask := func(what string, r request) {
			code, docs, err := r.send(s.client, s.host, kept)
			require.NoError(t, err)
			answers = append(answers, object{what: s.answer(r, code, docs, map[string]string{}, map[string]bool{})})
		}
		for _, part := range fields[path] {
			text, err := jsonpatch.MergePatch(whole, []byte(part))
			require.NoError(t, err)
			ask("new "+short(part), request{Request: "POST " + path + "?dryRun=All", Body: text})
		}
		s.must(t, random{}.sends("POST", path, "", body), kept)
		for _, part := range fields[path] {
			ask("changed "+short(part), request{Request: "PATCH " + path + "/a?dryRun=All", As: "merge", Body: json.RawMessage(part)})
		}
		s.must(t, random{}.sends("DELETE", path+"/a", "", deleteNow), kept)
		return answers
	})
}

func short(part string) string { return fmt.Sprintf("%.150s", part) }

// plain are the kinds of random requests whose objects are made of minimal and fields.
var plain = map[string]struct{ version, kind string }{
	"services": {"v1", "Service"}, "secrets": {"v1", "Secret"}, "serviceaccounts": {"v1", "ServiceAccount"}, "podtemplates": {"v1", "PodTemplate"}, "replicationcontrollers": {"v1", "ReplicationController"},
	"leases": {"coordination.k8s.io/v1", "Lease"}, "cronjobs": {"batch/v1", "CronJob"}, "controllerrevisions": {"apps/v1", "ControllerRevision"}, "endpointslices": {"discovery.k8s.io/v1", "EndpointSlice"},
	"resourceclaims": {"resource.k8s.io/v1", "ResourceClaim"}, "resourceclaimtemplates": {"resource.k8s.io/v1", "ResourceClaimTemplate"}, "csistoragecapacities": {"storage.k8s.io/v1", "CSIStorageCapacity"},
	"horizontalpodautoscalers": {"autoscaling/v2", "HorizontalPodAutoscaler"}, "networkpolicies": {"networking.k8s.io/v1", "NetworkPolicy"},
}

func withPlain(paths map[string]string) map[string]string {
	for kind, of := range plain {
		root := "/apis/" + of.version
		if of.version == "v1" {
			root = "/api/v1"
		}
		paths[kind] = root + "/namespaces/{ns}/" + kind
	}
	return paths
}

// plainFields are the fields of a new object of a kind, half of the time with one of those that are compared.
func (r random) plainFields(path string) object {
	text := []byte(minimal[path])
	if part := pick(r, fields[path]...); r.chance(2) && len(part) < 1000 {
		var err error
		if text, err = jsonpatch.MergePatch(text, []byte(part)); err != nil {
			panic(err)
		}
	}
	var made object
	if err := json.Unmarshal(text, &made); err != nil {
		panic(err)
	}
	return made
}
