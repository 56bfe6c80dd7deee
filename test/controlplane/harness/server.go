// Package harness runs the API servers that tests and benchmarks speak to, each
// a process of its own: a real kube-apiserver with its etcd, and the embedded
// API of evictd. It asserts nothing.
package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The client certificates of a kube-apiserver. The embedded API knows nobody
// by name: what an identity may not do there shows on a kube-apiserver only.
const (
	Admin     = "admin"
	Node      = "node"      // the kubelet's of the node NodeName
	Scheduler = "scheduler" // the service account of docs/rbac/scheduler.yaml
	Kube      = "kube"      // kube-scheduler
)

// NodeName is the node whose identity Node is.
const NodeName = "n1"

var identities = []string{
	Node + "=system:node:" + NodeName + "/system:nodes",
	Scheduler + "=system:serviceaccount:evictd-system:evictd-scheduler/system:serviceaccounts/system:serviceaccounts:evictd-system",
	Kube + "=system:kube-scheduler",
}

// patience bounds the start and the end of a server.
const patience = 2 * time.Minute

// Server is an API server, started by one of the functions that return it and
// owned by whoever called that. It goes on with the same objects, at the same
// address, when it is killed and started again.
type Server struct {
	// Name is kube-apiserver or embedded.
	Name string

	dir     string
	launch  func(*Server) (*exec.Cmd, error) // returns once it is ready
	process *exec.Cmd
	ended   chan struct{} // closed once process is reaped
	address string        // unix:PATH, empty for a kube-apiserver
	port    string        // of a kube-apiserver, once it is known
	extra   []string
}

// UnavailableError says why a server cannot run here.
type UnavailableError struct{ Reason string }

func (e *UnavailableError) Error() string { return e.Reason }

// NewKubeAPIServer starts a kube-apiserver with more flags. Where `make
// controlplane` has not built one the error is an UnavailableError.
func NewKubeAPIServer(flags ...string) (*Server, error) {
	return start(&Server{Name: "kube-apiserver", launch: launchKubeAPIServer, extra: flags})
}

// NewEmbedded starts the embedded API, given its program.
func NewEmbedded(program string) (*Server, error) {
	return start(&Server{Name: "embedded", launch: func(s *Server) (*exec.Cmd, error) { return launchEmbedded(s, program) }})
}

func start(s *Server) (*Server, error) {
	dir, err := os.MkdirTemp("", "evictd-api-")
	if err != nil {
		return nil, err
	}
	s.dir = dir
	if err := s.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// Program is the path of a foreign program that `make controlplane` builds.
// Where it has not the error is an UnavailableError.
func Program(name string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "test/controlplane/bin", name)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	reason, err := os.ReadFile(filepath.Join(filepath.Dir(path), "unavailable"))
	if err != nil || len(reason) == 0 {
		return "", &UnavailableError{"there is no test/controlplane/bin/" + name + ": `make controlplane` builds it"}
	}
	return "", &UnavailableError{fmt.Sprintf("there is no test/controlplane/bin/%s: %s", name, strings.TrimSpace(string(reason)))}
}

// Root is the root of the source tree that the working directory is in.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "test/controlplane/go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("the working directory is not in the source tree of evictd")
		}
		dir = filepath.Dir(dir)
	}
}

// Build builds evictd's own programs into a directory.
func Build(dir string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	build := exec.Command("go", "-C", root, "build", "-o", dir+"/", "./cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build evictd: %w\n%s", err, out)
	}
	return nil
}

// Start starts a server that was killed, and returns once it is ready.
func (s *Server) Start() error {
	process, err := s.launch(s)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	s.process, s.ended = process, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		process.Wait()
	}(s.ended)
	return nil
}

// Kill ends the server with SIGKILL and returns when it is gone.
func (s *Server) Kill() {
	s.process.Process.Kill()
	<-s.ended
}

// Stop ends the server in order, or after a while at any rate, and removes what
// it kept.
func (s *Server) Stop() error {
	s.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.Kill()
	}
	return os.RemoveAll(s.dir)
}

// Pid is the process id, new after every Start.
func (s *Server) Pid() int { return s.process.Process.Pid }

// Args are the flags by which a program reaches the server as an identity.
func (s *Server) Args(identity string) []string {
	if s.address != "" {
		return []string{"--server=" + s.address}
	}
	return []string{"--kubeconfig=" + s.Kubeconfig(identity)}
}

// Kubeconfig is the file of an identity of a kube-apiserver.
func (s *Server) Kubeconfig(identity string) string {
	return filepath.Join(s.dir, identity+".kubeconfig")
}

// Config is how client-go reaches the server as an identity, at any rate.
func (s *Server) Config(identity string) (*rest.Config, error) {
	if socket, found := strings.CutPrefix(s.address, "unix:"); found {
		return &rest.Config{Host: "http://localhost", QPS: -1, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig(identity))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}

// Client is a client of the identity.
func (s *Server) Client(identity string) (*kubernetes.Clientset, error) {
	config, err := s.Config(identity)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

func launchKubeAPIServer(s *Server) (*exec.Cmd, error) {
	program, err := Program("controlplane")
	if err != nil {
		return nil, err
	}
	args := []string{"-stdin", "-dir=" + s.dir}
	for _, identity := range identities {
		args = append(args, "-identity="+identity)
	}
	if s.port != "" {
		args = append(args, "-port="+s.port)
	}
	process := exec.Command(program, append(append(args, "--"), s.extra...)...)
	process.Stderr = os.Stderr
	// The write end stays open for as long as this process lives.
	if _, err := process.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "READY ") {
		process.Process.Kill()
		return nil, errors.Join(fmt.Errorf("it said %q instead of READY", line), process.Wait())
	}
	config, err := s.Config(Admin)
	if err == nil {
		s.port = config.Host[strings.LastIndexByte(config.Host, ':')+1:]
		err = awaitNamespace(config)
	}
	if err != nil {
		process.Process.Kill()
		process.Wait()
		return nil, err
	}
	return process, nil
}

func launchEmbedded(s *Server, program string) (*exec.Cmd, error) {
	s.address = "unix:" + filepath.Join(s.dir, "api.sock")
	process := exec.Command(program, "--data="+filepath.Join(s.dir, "data"), "--listen="+s.address)
	process.Stderr = os.Stderr
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		return nil, err
	}
	config, err := s.Config(Admin)
	if err == nil {
		err = awaitNamespace(config)
	}
	if err != nil {
		process.Process.Kill()
		process.Wait()
		return nil, err
	}
	return process, nil
}

// awaitNamespace asks until the server is ready and has made its first
// namespace, which happens after a kube-apiserver says that it is ready.
func awaitNamespace(config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := get(ctx, client, strings.TrimSuffix(config.Host, "/")+"/api/v1/namespaces/default")
		if err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no namespace default after %v: last answer %d, %w", patience, status, err)
		case <-tick.C:
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	return response.StatusCode, nil
}
