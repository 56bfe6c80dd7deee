package sandbox

// The flags of evictd's programs, each stated once. Those of thresholds take the
// grammar of the kubelet's, such as memory.available<64Mi.

func Config(file string) string              { return "--config=" + file }
func Mode(mode string) string                { return "--mode=" + mode }
func NodeName(name string) string            { return "--node-name=" + name }
func NodeMemory(quantity string) string      { return "--node-memory=" + quantity }
func CgroupRoot(group string) string         { return "--cgroup-root=" + group }
func PodsCgroup(name string) string          { return "--pods-cgroup=" + name }
func PodManifests(dir string) string         { return "--pod-manifests=" + dir }
func Kubeconfig(file string) string          { return "--kubeconfig=" + file }
func Server(address string) string           { return "--server=" + address }
func CRIEndpoint(address string) string      { return "--cri-endpoint=" + address }
func RuncState(dirs string) string           { return "--runc-state=" + dirs }
func NodeFs(path string) string              { return "--nodefs=" + path }
func ImageFs(path string) string             { return "--imagefs=" + path }
func ContainerFs(path string) string         { return "--containerfs=" + path }
func NodeStatusFile(file string) string      { return "--node-status-file=" + file }
func StatusAddress(addresses string) string  { return "--status-address=" + addresses }
func StateDir(dir string) string             { return "--state-dir=" + dir }
func RuntimeDir(dir string) string           { return "--runtime-dir=" + dir }
func Housekeeping(interval string) string    { return "--housekeeping-interval=" + interval }
func Transition(period string) string        { return "--eviction-pressure-transition-period=" + period }
func EvictionHard(thresholds string) string  { return "--eviction-hard=" + thresholds }
func EvictionSoft(thresholds string) string  { return "--eviction-soft=" + thresholds }
func SoftGrace(graces string) string         { return "--eviction-soft-grace-period=" + graces }
func MaxPodGrace(seconds string) string      { return "--eviction-max-pod-grace-period=" + seconds }
func HardGrace(period string) string         { return "--hard-eviction-grace-period=" + period }
func SoftEviction(way string) string         { return "--soft-eviction=" + way }
func SoftDeadline(period string) string      { return "--soft-eviction-deadline=" + period }
func SystemReserved(resources string) string { return "--system-reserved=" + resources }
func KubeReserved(resources string) string   { return "--kube-reserved=" + resources }

// Flags without a value.
const (
	DryRun = "--dry-run"
	// Force has evictd run in native mode on a host with a kubelet, which has another
	// node.
	Force = "--force"
)

// Run are the arguments of `evictd run` that every sandbox has: with a status address and
// what evictd keeps in dir, quick passes, and without what else is on this host. Those
// that follow win.
func Run(dir string, more ...string) []string {
	return append([]string{
		"run", Force, NodeName("node-1"), CRIEndpoint("none"), NodeFs(dir), StateDir(dir + "/state"), RuntimeDir(dir + "/run"),
		StatusAddress("unix:" + Socket(dir)), Housekeeping("100ms"), Transition("1s"),
	}, more...)
}

// Socket is the status address of an evictd that Run describes.
func Socket(dir string) string { return dir + "/status.sock" }

// APIServer are the arguments of evictd-apiserver, which serves on a unix socket and
// keeps its objects in a directory.
func APIServer(socket, data string, more ...string) []string {
	return append([]string{"--data=" + data, "--listen=unix:" + socket}, more...)
}

// Listen has evictd-apiserver serve at an address of loopback too.
func Listen(address string) string { return "--listen=" + address }

// Scheduler are the arguments of `evictd-scheduler run` with a status address on a
// unix socket. It needs Server or Kubeconfig beside them.
func Scheduler(socket string, more ...string) []string {
	return append([]string{"run", StatusAddress("unix:" + socket), "--leader-elect=false"}, more...)
}
