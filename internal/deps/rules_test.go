package deps

// A package is named here by its path below the module. A pattern is such a
// name; or it ends in "/..." for the package and everything below it, or starts
// with "*/" for any package with that last element.

// pure packages decide and compute. What they say follows from their arguments
// alone, which is why every decision replays from text.
var pure = []string{
	"cri/inventory", "eviction", "eviction/config", "eviction/reclaim", "eviction/simulate",
	"internal/admission", "internal/manifest", "internal/podspec", "internal/procfs", "stats", "oom", "nodestatus",
	"scheduleradapter/config", "scheduleradapter/nodetable", "scheduleradapter/queue",
	"scheduleradapter/framework", "scheduleradapter/lifecycle", "scheduleradapter/plugins/...", "scheduleradapter/preempt",
}

// arrow says which of the project's packages one may import itself.
type arrow struct {
	pkg string
	may []string
	why string
}

// arrows has a row for every package, so a new package needs a new row. A row with the
// path of the package is used before one with a pattern.
var arrows = []arrow{
	{"cmd/evictd-playground/console", []string{"internal/cli"}, "a terminal knows nothing of pods"},
	{"cmd/evictd-playground/workloads", nil, "the playground's controller knows the API only"},
	{"cmd/evictd-playground/podprocess", []string{"internal/process"}, "a process knows nothing of the node that it runs on"},
	{"cmd/evictd-playground/runner", []string{"cgroup", "cmd/evictd-playground/podprocess", "eviction", "internal/podspec", "stats"}, "the playground's kubelet is no part of evictd"},
	{"cmd/evictd-playground/...", []string{"cgroup", "cmd/evictd-playground/...", "eviction/...", "internal/...", "nodestatus/...", "stats"}, "the playground drives the built programs"},
	{"cmd/...", []string{"cgroup", "cri", "eviction/...", "internal/...", "nodestatus/...", "oom/...", "scheduleradapter/...", "stats/..."},
		"programs assemble everything and nothing imports a program"},

	{"stats", nil, "values are the bottom of the house"},
	{"cgroup", []string{"internal/procfs", "stats"}, "kernel files in, values out"},
	{"cgroup/cgrouptest", []string{"cgroup", "internal/wait"}, "tests of every package make groups of this host here"},
	{"cri/inventory", nil, "what a runtime has is a value"},
	{"cri/critest", nil, "a runtime for tests says what a test gives it"},
	{"cri", []string{"cri/inventory", "internal/wire"}, "the runtime's answers in, messages out"},
	{"internal/doctable", nil, "command lines in, tables out"},
	{"internal/osprocess", nil, "thread and memory settings know nothing of eviction"},
	{"internal/podspec", nil, "what Kubernetes derives from a pod is below everything that asks for it"},
	{"internal/procfs", nil, "text in, values out"},
	{"internal/manifest", nil, "text in, values out"},
	{"internal/metric", nil, "metrics are made here, and measured elsewhere"},
	{"internal/serve", []string{"internal/cli"}, "offering status knows nothing of what it says"},
	{"internal/podtemplate", []string{"internal/admission"}, "pods follow from the workload alone"},
	{"internal/page", nil, "serving a page knows nothing of what it shows"},
	{"internal/kubeclient", []string{"internal/kubeclient/address"}, "finding the API server knows nothing of what is said there"},
	{"internal/jsonsize", nil, "brackets are counted whatever the text means"},
	{"internal/pace", nil, "a rate knows nothing of what is listed"},
	{"internal/kubeclient/address", nil, "the address of an API server is checked by the guard too, which has no client"},
	{"internal/cli", []string{"internal/manifest"}, "command lines are alike in every program"},
	{"internal/wire", []string{"cri/inventory", "internal/jsonsize"}, "messages carry values"},
	{"internal/admission", []string{"internal/podspec"}, "defaults follow from the object alone"},
	{"internal/embeddedapi", []string{"internal/admission", "internal/embeddedapi/apply", "internal/embeddedapi/bound", "internal/embeddedapi/openapi", "internal/embeddedapi/quota", "internal/embeddedapi/store", "internal/embeddedapi/strategy", "internal/jsonsize", "internal/manifest", "internal/podspec"},
		"the embedded API stores and admits objects, and knows nothing of eviction"},
	{"internal/embeddedapi/apitest", []string{"internal/process", "internal/require", "internal/sandbox"}, "tests of what speaks to an API have one, and link none of it"},
	{"internal/embeddedapi/apply", nil, "an object and a configuration in, the merged object out"},
	{"internal/embeddedapi/bound", []string{"internal/podspec"}, "a text and a type in, a verdict out"},
	{"internal/embeddedapi/openapi", nil, "types in, documents out"},
	{"internal/embeddedapi/quota", nil, "a write and quotas in, a verdict out"},
	{"internal/embeddedapi/store", []string{"internal/osprocess"}, "objects are kept, whatever they are"},
	{"internal/embeddedapi/strategy", nil, "an object in, the object as it is stored or its faults out"},
	{"internal/deps", nil, "a test of the house stands outside it"},
	{"internal/tick", nil, "when work is due says nothing of the work"},
	{"internal/wait", nil, "tests of every package wait with it"},
	{"internal/require", nil, "tests of every package check with it the steps that must not fail"},
	{"internal/process", []string{"internal/wait"}, "a child is started, whatever its program is"},
	{"internal/workload", []string{"internal/process"}, "the program of a pod knows nothing of the node that it runs on"},
	{"internal/sandbox", []string{"cgroup", "internal/podspec", "internal/process", "internal/wait", "internal/workload", "stats"}, "a sandbox runs the built programs and knows only their command lines"},
	{"internal/install", []string{"cgroup", "internal/cli", "internal/process", "internal/serve", "stats"}, "a program is put onto a host; without systemd it is a process in a cgroup beside that of the pods"},
	{"internal/install/kube", []string{"internal/install"}, "the API server is asked to have the pods uninstall, by the variable that they read"},
	{"internal/golden", nil, "tests of every package hold their files with it"},
	{"systemd", nil, "units are held against systemd alone"},
	{"test/bench", []string{"cgroup", "eviction", "internal/process", "internal/sandbox", "nodestatus", "stats"}, "the bench is a node, and another program that decides by the core"},
	{"test/harness", []string{"cgroup", "cgroup/cgrouptest", "internal/procfs", "internal/process", "internal/require", "internal/sandbox", "internal/wait", "internal/workload", "nodestatus", "stats"}, "tests see evictd by its status document alone"},
	{"test/harness/kube", []string{"internal/kubeclient", "internal/require", "internal/sandbox", "internal/wait", "test/harness"}, "tests of running programs reach an API server here"},
	{"test/all", []string{"internal/campaign", "internal/sandbox"}, "tests are run here, and look for the programs where sandbox says"},
	{"test/controlplane/apiserver", []string{"internal/kubeclient", "internal/process", "internal/sandbox", "internal/wait"}, "an API server runs as a process, whatever is tested on it"},
	{"test/controlplane/scheduler", []string{"internal/process", "internal/sandbox"}, "a scheduler runs as a process, whatever is tested by it"},
	{"test/controlplane/bench", []string{"internal/sandbox", "test/controlplane/apiserver", "test/controlplane/scheduler"}, "the bench drives the built scheduler"},
	{"test/deploy", []string{"internal/golden", "internal/require", "test/controlplane/apiserver"}, "the chart is made by helm, and an API server accepts it"},
	{"test/controlplane/conformance", []string{"internal/process", "internal/sandbox", "internal/wait", "test/controlplane/apiserver", "test/controlplane/scheduler"}, "upstream's tests drive the built scheduler"},
	{"test/uml", []string{"internal/process"}, "a kernel is a process, whatever is run in it"},
	{"test/uml/run", []string{"test/uml"}, "the command of the package"},
	{"test/...", nil, "tests of the whole drive the built programs"},
	{"internal/shrink", nil, "comparisons with Kubernetes make their failing inputs smaller"},
	{"internal/campaign", nil, "tests of every package mark campaigns with it"},

	{"eviction", []string{"internal/podspec", "stats"}, "the core decides over values only"},
	{"eviction/config", []string{"eviction", "eviction/reclaim", "internal/manifest", "stats"}, "configuration becomes the core's thresholds"},
	{"eviction/reclaim", []string{"eviction", "stats"}, "reclaim chooses over values only"},
	{"eviction/simulate", []string{"eviction", "eviction/config", "eviction/reclaim", "internal/manifest", "nodestatus", "stats"}, "a scenario drives the core and names what it would publish"},
	{"eviction/kill", []string{"cgroup", "eviction", "internal/procfs", "stats"}, "a kill waits for no API and no runtime"},
	{"eviction/pods", []string{"cri/inventory", "eviction", "internal/manifest", "internal/podspec", "internal/tick", "internal/wire", "stats"}, "pods are found here, judged in the core"},
	{"eviction/pods/runc", []string{"cri/inventory", "internal/wire"}, "runc's states in, messages out"},
	{"eviction/pods/...", []string{"eviction/pods", "cgroup", "eviction", "internal/pace", "internal/podspec", "stats"}, "a source of pods feeds the merged view"},
	{"eviction/recorder", []string{"eviction", "eviction/config", "eviction/control", "eviction/journal", "eviction/kill", "eviction/simulate", "internal/podspec", "nodestatus", "stats"},
		"recording decides nothing and blocks nothing"},
	{"eviction/undo", nil, "files are put back, whatever they are"},
	{"eviction/notify", nil, "a notice is delivered, whatever it says"},
	{"eviction/gc", []string{"cri/inventory", "eviction", "eviction/control", "eviction/journal", "eviction/reclaim", "internal/wire", "stats"},
		"removes and reports what reclaim has chosen"},
	{"eviction/intent", nil, "the file keeps entries and does not interpret them"},
	{"eviction/checkpoint", []string{"eviction", "eviction/control", "eviction/intent", "eviction/journal", "eviction/kill", "internal/osprocess", "internal/wire"}, "what the next process continues with is written beside the loop"},
	{"eviction/journal", nil, "the journal keeps entries and knows nothing of what they mean"},
	{"eviction/agent", []string{"cri/inventory", "eviction/checkpoint", "eviction/kill", "internal/osprocess", "internal/wire", "nodestatus"}, "evictd's side of the socket; the agent on the other side has the API server"},
	{"eviction/control", []string{"eviction", "eviction/config", "eviction/kill", "eviction/pods", "eviction/reclaim", "internal/tick", "nodestatus", "oom", "oom/apply", "stats", "stats/collect"},
		"the loop could run in a process of its own without network"},

	{"eviction/daemon", []string{"cgroup", "cri/inventory", "eviction/...", "internal/...", "nodestatus", "oom/...", "stats/..."}, "evictd run assembles everything below it"},
	{"eviction/publish", []string{"cri/inventory", "eviction", "eviction/control", "eviction/gc", "eviction/kill", "eviction/reclaim", "internal/metric", "internal/osprocess", "internal/wire", "nodestatus", "oom/watch", "stats"}, "publishing decides nothing and blocks nothing"},

	{"stats/collect", []string{"cgroup", "internal/procfs", "internal/tick", "stats"}, "sensing knows no pods beyond their cgroups"},
	{"oom", []string{"internal/podspec"}, "a policy over manifests"},
	{"oom/apply", []string{"cgroup", "internal/procfs", "oom", "stats"}, "writing scores decides nothing"},
	{"oom/watch", []string{"cgroup", "internal/tick", "oom", "stats"}, "following the kernel decides nothing"},
	{"nodestatus", []string{"eviction", "stats"}, "status is a function of the core's state"},
	{"nodestatus/render", []string{"eviction", "nodestatus"}, "text for people is made from the status documents"},
	{"nodestatus/kube", []string{"eviction", "internal/pace", "internal/wire", "nodestatus", "stats"}, "publishing decides nothing"},

	{"scheduleradapter", []string{"internal/...", "scheduleradapter/..."}, "the root assembles its parts"},
	{"scheduleradapter/config", []string{"internal/manifest", "scheduleradapter/framework"}, "profiles name plugins and know none"},
	{"scheduleradapter/nodetable", []string{"internal/podspec"}, "columns are the bottom of the scheduler"},
	{"scheduleradapter/queue", []string{"scheduleradapter/framework", "scheduleradapter/nodetable"}, "hints are the framework's"},
	{"scheduleradapter/framework", []string{"scheduleradapter/nodetable"}, "extension points run over columns"},
	{"scheduleradapter/plugins/pressure", []string{"scheduleradapter/config", "scheduleradapter/framework", "scheduleradapter/nodetable"}, "its arguments are the project's own, and config reads arguments"},
	{"scheduleradapter/plugins/nodelabel", []string{"scheduleradapter/config", "scheduleradapter/framework", "scheduleradapter/nodetable"}, "its arguments are the project's own, and config reads arguments"},
	{"scheduleradapter/plugins/serviceaffinity", []string{"scheduleradapter/config", "scheduleradapter/framework", "scheduleradapter/nodetable"}, "its arguments are the project's own, and config reads arguments"},
	{"scheduleradapter/plugins/volumes", []string{"scheduleradapter/config", "scheduleradapter/framework", "scheduleradapter/nodetable"}, "its arguments are the project's own, and config reads arguments"},
	{"scheduleradapter/plugins/...", []string{"scheduleradapter/framework", "scheduleradapter/nodetable"}, "plugins do not know each other"},
	{"scheduleradapter/preempt", []string{"scheduleradapter/framework", "scheduleradapter/nodetable"}, "victims follow from columns"},
	{"scheduleradapter/cycle", []string{"internal/metric", "scheduleradapter/framework", "scheduleradapter/nodetable", "scheduleradapter/preempt", "scheduleradapter/queue"},
		"the scheduling and binding cycles call interfaces, which kube and simulate implement"},
	{"scheduleradapter/outoftree", []string{"scheduleradapter/cycle", "scheduleradapter/framework", "scheduleradapter/nodetable", "scheduleradapter/queue"}, "it implements interfaces of framework, and passes requests of plugins to the owner of the scheduler"},
	{"scheduleradapter/extender", []string{"internal/jsonsize", "internal/manifest", "scheduleradapter/config", "scheduleradapter/framework", "scheduleradapter/nodetable"}, "it implements points of the framework, over HTTP"},
	{"scheduleradapter/profile", []string{"scheduleradapter/config", "scheduleradapter/cycle", "scheduleradapter/extender", "scheduleradapter/framework", "scheduleradapter/nodetable", "scheduleradapter/outoftree", "scheduleradapter/plugins/...", "scheduleradapter/preempt"},
		"profiles are made of plugins and extenders"},
	{"scheduleradapter/explain", []string{"internal/cli", "internal/serve", "scheduleradapter/cycle"}, "it prints what cycle explains"},
	{"scheduleradapter/whatif", []string{"internal/admission", "internal/cli", "internal/manifest", "internal/podspec", "internal/podtemplate", "internal/serve", "scheduleradapter/cycle"}, "it reads questions that cycle answers"},
	{"scheduleradapter/secureserving", []string{"internal/kubeclient", "internal/serve"}, "it authenticates and authorizes clients, and does not read what is served"},
	{"scheduleradapter/statuspage", []string{"internal/page", "internal/serve", "scheduleradapter/cycle"}, "it serves what cycle reports"},
	{"scheduleradapter/drain", []string{"internal/cli", "internal/kubeclient"}, "a drain uses the API server only"},
	{"scheduleradapter/kube", []string{"internal/metric", "internal/podspec", "scheduleradapter/cycle", "scheduleradapter/framework", "scheduleradapter/nodetable", "scheduleradapter/plugins/devices", "scheduleradapter/plugins/volumes"}, "it implements interfaces of cycle, framework, devices and volumes"},
	{"scheduleradapter/lifecycle", []string{"internal/admission", "scheduleradapter/nodetable"}, "taints follow from conditions and time"},
	{"scheduleradapter/lifecycle/kube", []string{"internal/metric", "scheduleradapter/lifecycle"}, "writing to the API decides nothing"},
	{"scheduleradapter/simulate", []string{"internal/admission", "internal/manifest", "internal/podtemplate", "scheduleradapter/..."}, "a simulation runs the real parts"},
}

// foundation packages are shared by the eviction manager and the scheduler, or are below
// both; upper packages they never import, whatever their rows say.
var foundation, upper = []string{"internal/...", "oom/...", "cgroup", "cri/...", "stats/..."}, []string{"eviction/...", "nodestatus/...", "scheduleradapter/...", "cmd/..."}

// fence keeps foreign code in the places listed. An import path stands for
// everything below it too. Behind a deep fence, a package outside the places may
// not reach the code through other modules either; through a package inside the
// places it may.
type fence struct {
	paths, places []string
	deep          bool
	why           string
}

var fences = []fence{
	{
		paths:  []string{"k8s.io/client-go", "k8s.io/kube-scheduler/framework"},
		places: []string{"*/kube", "scheduleradapter/outoftree", "internal/kubeclient", "internal/pace", "internal/embeddedapi", "internal/embeddedapi/apitest", "internal/embeddedapi/apply", "internal/embeddedapi/quota", "internal/embeddedapi/strategy", "scheduleradapter", "scheduleradapter/drain", "scheduleradapter/secureserving", "cmd/evictd-agent", "cmd/evictd-apiserver", "cmd/evictd-playground/...", "cmd/evictd-scheduler", "cmd/kubectl-evictd", "test/controlplane/..."},
		deep:   true,
		why:    "the API server's client stays at the edge, so that deciding, sensing and killing need no network",
	},
	{
		paths:  []string{"k8s.io/cri-api", "google.golang.org/grpc"},
		places: []string{"cri", "cri/critest", "internal/embeddedapi/quota", "internal/embeddedapi/strategy"},
		deep:   true,
		why:    "only cri speaks to the container runtime: a runtime that hangs must not hang anything else; Kubernetes' registry links the client of etcd and never makes one",
	},
	{
		paths:  []string{"github.com/gdamore/tcell"},
		places: []string{"cmd/evictd-top"},
		deep:   true,
		why:    "the live view is a program of its own, so that no other grows by a terminal library",
	},
	{
		paths:  []string{"golang.org/x/sys"},
		places: []string{"cgroup", "stats/collect", "oom/apply", "oom/watch", "eviction/kill", "eviction/notify", "internal/osprocess", "test/bench", "test/uml"},
		why:    "system calls stay where the kernel is spoken to",
	},
	{
		paths:  []string{"k8s.io/apiserver/pkg/authentication/request", "k8s.io/apiserver/pkg/authentication/token", "k8s.io/apiserver/pkg/server"},
		places: []string{"internal/embeddedapi/quota", "internal/embeddedapi/strategy", "scheduleradapter", "scheduleradapter/secureserving"},
		deep:   true,
		why:    "the scheduler's secure port alone authenticates clients by the API server; k8s.io/apiserver/pkg/server/options needs gRPC, which only cri may import",
	},
	{
		paths:  []string{"k8s.io/kubernetes"},
		places: []string{"internal/embeddedapi/quota", "internal/embeddedapi/strategy"},
		deep:   true,
		why:    "it is no library: the embedded API alone runs its strategies, and a test module under test/ may import it",
	},
}

// lean are programs that must stay small, and what they may not link by any way.
var lean = []struct {
	program string
	paths   []string
	why     string
}{
	{"cmd/evictd", []string{"k8s.io/client-go", "k8s.io/cri-api", "google.golang.org/grpc", "github.com/opencontainers/runc", "k8s.io/kubernetes"}, "the loop that senses and kills stays small and needs no network; its agent speaks for it"},
	{"cmd/evictd-agent", []string{"k8s.io/client-go/kubernetes/typed/apps", "k8s.io/client-go/informers", "k8s.io/kubernetes"}, "an agent runs on each node, and uses four API groups"},
	{"cmd/evictd-scheduler", []string{"k8s.io/kubernetes"}, "the scheduler simulates what an API server defaults and refuses by internal/admission, which is small"},
}

// impureImports are what a pure package may not import itself.
var impureImports = []struct {
	paths []string
	why   string
}{
	{[]string{"os", "io/ioutil", "syscall", "golang.org/x/sys", "plugin"}, "a pure package does no I/O"},
	{[]string{"net", "crypto/tls"}, "a pure package knows no network"},
	{[]string{"log", "k8s.io/klog"}, "a pure package returns reasons; its caller logs"},
	{[]string{"math/rand", "crypto/rand", "hash/maphash"}, "the same input gives the same output"},
}

// impureNames are what a pure package may not use of packages it may import.
var impureNames = []struct {
	path  string
	names []string
	why   string
}{
	{"time", []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Local", "LoadLocation"}, "time is an argument, so that every decision replays"},
	{"fmt", []string{"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"}, "a pure package does no I/O"},
}

// folders are the top-level folders the house has room for.
var folders = []string{
	"bin", "cgroup", "cmd", "cri", "deploy", "docs", "eviction", "internal", "nodestatus", "oom", "scheduleradapter", "stats", "systemd", "test",
}

// vague package names say nothing of what is inside.
var vague = []string{"util", "utils", "common", "helpers", "types", "misc", "base"}
