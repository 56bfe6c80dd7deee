// Package apiserver runs the API servers of tests and benchmarks, each a process of its
// own: a real kube-apiserver with its etcd, and the embedded API of evictd. It asserts
// nothing.
package apiserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/kubeclient"
	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/wait"
)

// The client certificates of a kube-apiserver. The embedded API has no authorization:
// only a kube-apiserver forbids requests.
const (
	Admin     = "admin"
	Node      = "node"      // the kubelet's of the node NodeName
	OtherNode = "othernode" // the kubelet's of the node OtherNodeName
	Scheduler = "scheduler" // the service account of deploy/rbac/scheduler.yaml
	Kube      = "kube"      // kube-scheduler
)

// The nodes whose identities Node and OtherNode are.
const NodeName, OtherNodeName = "n1", "n2"

var identities = []string{
	Node + "=system:node:" + NodeName + "/system:nodes",
	OtherNode + "=system:node:" + OtherNodeName + "/system:nodes",
	Scheduler + "=system:serviceaccount:evictd-system:evictd-scheduler/system:serviceaccounts/system:serviceaccounts:evictd-system",
	Kube + "=system:kube-scheduler",
}

// Server is an API server, started by a function that returns it and owned by its
// caller. After Kill and Start it has the same objects and the same address.
type Server struct {
	// Name is kube-apiserver or embedded.
	Name string

	dir     string
	launch  func(*Server) (*process.Process, error) // returns once it is ready
	process *process.Process
	address string // unix:PATH, empty for a kube-apiserver
	port    string // on loopback, once it is known
	extra   []string
	objects string // directory in dir in which the objects live
}

// UnavailableError says why a server cannot run here.
type UnavailableError struct{ Reason string }

func (e *UnavailableError) Error() string { return e.Reason }

// NewKubeAPIServer starts a kube-apiserver with more flags. Where `make
// controlplane` has not built one the error is an UnavailableError.
func NewKubeAPIServer(flags ...string) (*Server, error) {
	return start(&Server{Name: "kube-apiserver", launch: launchKubeAPIServer, extra: flags, objects: "etcd"})
}

// NewEmbedded starts the embedded API, given its program.
func NewEmbedded(program string) (*Server, error) {
	return start(&Server{Name: "embedded", objects: "data", launch: func(s *Server) (*process.Process, error) { return launchEmbedded(s, program) }})
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
	root, err := sandbox.SourceRoot()
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

// Start starts a server that was killed, and returns once it is ready.
func (s *Server) Start() (err error) {
	if s.process, err = s.launch(s); err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	return nil
}

// Kill ends the server with SIGKILL and returns when it has ended.
func (s *Server) Kill() { s.process.Kill() }

// Stop ends the server with SIGTERM, or after wait.Limit with SIGKILL, and removes what it
// kept.
func (s *Server) Stop() error {
	s.end()
	return os.RemoveAll(s.dir)
}

func (s *Server) end() {
	ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
	defer cancel()
	_ = s.process.Stop(ctx) // its exit code means nothing here
}

// Save ends the server and copies its objects, for Restore.
func (s *Server) Save() error {
	s.end()
	return os.CopyFS(s.File("saved"), os.DirFS(s.File(s.objects)))
}

// Restore ends the server and starts it with the objects that Save has copied, as often as
// it is called.
func (s *Server) Restore() error {
	s.end()
	if err := os.RemoveAll(s.File(s.objects)); err != nil {
		return err
	}
	if err := os.CopyFS(s.File(s.objects), os.DirFS(s.File("saved"))); err != nil {
		return err
	}
	return s.Start()
}

// Pid is the process id, new after every Start.
func (s *Server) Pid() int { return s.process.PID() }

// Args are the flags by which a program reaches the server as an identity.
func (s *Server) Args(identity string) []string {
	if s.address != "" {
		return []string{sandbox.Server(s.address)}
	}
	return []string{sandbox.Kubeconfig(s.Kubeconfig(identity))}
}

// Kubeconfig is the file of an identity.
func (s *Server) Kubeconfig(identity string) string { return s.File(identity + ".kubeconfig") }

// File is the path of a file that the server keeps, such as pki/ca.crt.
func (s *Server) File(name string) string { return filepath.Join(s.dir, name) }

// Config is how client-go reaches the server as an identity, at any rate.
func (s *Server) Config(identity string) (*rest.Config, error) {
	if s.address != "" {
		return kubeclient.Config("", s.address)
	}
	return kubeclient.Config(s.Kubeconfig(identity), "")
}

// Client is a client of the identity.
func (s *Server) Client(identity string) (*kubernetes.Clientset, error) {
	config, err := s.Config(identity)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

func launchKubeAPIServer(s *Server) (*process.Process, error) {
	program, err := Program("controlplane")
	if err != nil {
		return nil, err
	}
	args := []string{"-dir=" + s.dir}
	for _, identity := range identities {
		args = append(args, "-identity="+identity)
	}
	if s.port != "" {
		args = append(args, "-port="+s.port)
	}
	cmd := exec.Command(program, append(append(args, "--"), s.extra...)...)
	cmd.Stderr = os.Stderr
	out, stdout, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	defer stdout.Close()
	cmd.Stdout = stdout
	p, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}
	stdout.Close() // so that what is read ends with the process
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "READY ") {
		p.Kill()
		return nil, fmt.Errorf("it wrote %q instead of READY", line)
	}
	if config, err := s.Config(Admin); err == nil {
		s.port = config.Host[strings.LastIndexByte(config.Host, ':')+1:]
	}
	return s.started(p)
}

func launchEmbedded(s *Server, program string) (*process.Process, error) {
	socket := filepath.Join(s.dir, "api.sock")
	s.address = "unix:" + socket
	if s.port == "" {
		if err := s.takePort(); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(program, append(sandbox.APIServer(socket, s.File(s.objects)), "--listen=127.0.0.1:"+s.port)...)
	cmd.Stderr = os.Stderr
	p, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}
	return s.started(p)
}

// takePort finds a free port of loopback, for the programs that read a kubeconfig, and writes their
// files: the embedded API knows no identities.
func (s *Server) takePort() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	_, s.port, err = net.SplitHostPort(l.Addr().String())
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:%s"}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}`, s.port)
	for _, identity := range []string{Admin, Node, OtherNode, Scheduler, Kube} {
		err = errors.Join(err, os.WriteFile(s.Kubeconfig(identity), []byte(text), 0o600))
	}
	return err
}

// started waits until a server is ready and has made its first namespace, which happens
// after a kube-apiserver says that it is ready. It kills a server that does not.
func (s *Server) started(p *process.Process) (*process.Process, error) {
	if err := s.awaitNamespace(); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

func (s *Server) awaitNamespace() error {
	client, err := s.Client(Admin)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
	defer cancel()
	if wait.That(ctx, func() bool {
		_, err = client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err == nil
	}) != nil {
		return fmt.Errorf("no namespace default after %v: %w", wait.Limit, err)
	}
	return nil
}
