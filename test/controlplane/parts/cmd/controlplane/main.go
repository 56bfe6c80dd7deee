// Controlplane runs etcd and kube-apiserver in one process on loopback, for tests. It
// prints READY and the path of the administrator's kubeconfig once /readyz answers ok,
// and ends on SIGINT and SIGTERM.
//
//	controlplane [flags] [-- flags of kube-apiserver, which win]
//
// What it serves lives in its directory: started there again, on the same port,
// it continues with the same objects and the same certificates. It is no cluster:
// no controller runs, and etcd does not wait for the disk.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// patience bounds the start of etcd and of kube-apiserver, each. It is as long as the waits of
// tests (internal/wait).
const patience = 5 * time.Minute

// options are the flags.
type options struct {
	dir        string
	port       int
	identities []identity
}

// identity is a client certificate to be written as NAME.kubeconfig.
type identity struct {
	name, user string
	groups     []string
}

func main() {
	o := options{identities: []identity{{name: "admin", user: "controlplane-admin", groups: []string{"system:masters"}}}}
	flag.StringVar(&o.dir, "dir", "", "where certificates, kubeconfigs, objects and the log live (default: a temporary directory, removed at the end)")
	flag.IntVar(&o.port, "port", 0, "port of kube-apiserver on 127.0.0.1 (0: a free one)")
	flag.Func("identity", "NAME=USER[/GROUP...], repeatable: write NAME.kubeconfig for that user beside admin.kubeconfig", o.addIdentity)
	flag.Parse()
	stderr := keepStderr()
	if err := run(o, flag.Args()); err != nil {
		fmt.Fprintln(stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func (o *options) addIdentity(text string) error {
	name, subject, _ := strings.Cut(text, "=")
	parts := strings.Split(subject, "/")
	if name == "" || name != filepath.Base(name) || parts[0] == "" {
		return errors.New("expected NAME=USER[/GROUP...]")
	}
	o.identities = append(o.identities, identity{name, parts[0], parts[1:]})
	return nil
}

func run(o options, extra []string) error {
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "controlplane-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.dir = dir
	}
	// etcd serves on sockets in there, which have absolute names.
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	log := filepath.Join(dir, "log")
	keys, err := openPKI(filepath.Join(dir, "pki"))
	if err != nil {
		return err
	}
	if o.port == 0 {
		if o.port, err = freePort(); err != nil {
			return err
		}
	}
	server := fmt.Sprintf("https://127.0.0.1:%d", o.port)
	for _, id := range o.identities {
		if err := keys.writeKubeconfig(filepath.Join(dir, id.name+".kubeconfig"), server, id); err != nil {
			return err
		}
	}
	etcd, endpoint, err := startEtcd(dir, log)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	if err := logTo(log); err != nil {
		return err
	}

	// The command cancels its context on SIGINT and SIGTERM by itself.
	command := app.NewAPIServerCommand()
	command.SetArgs(append(arguments(o.port, keys, endpoint), extra...))
	command.SilenceErrors, command.SilenceUsage = true, true
	ended := make(chan error, 1)
	go func() { ended <- command.Execute() }()
	if err := awaitReady(server, keys, ended); err != nil {
		return fmt.Errorf("kube-apiserver, whose log is %s: %w", log, err)
	}
	fmt.Println("READY", filepath.Join(dir, "admin.kubeconfig"))
	err = <-ended
	etcd.Close() // which waits for its clients: where kube-apiserver runs, etcd ends with the process
	if !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// arguments of kube-apiserver: what nodes and schedulers meet in a cluster
// stays on; what needs a controller that does not run here is off.
func arguments(port int, keys *pki, endpoint string) []string {
	return []string{
		"--etcd-servers=" + endpoint,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir=" + keys.dir,
		"--tls-cert-file=" + keys.file("apiserver.crt"),
		"--tls-private-key-file=" + keys.file("apiserver.key"),
		"--client-ca-file=" + keys.file("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + keys.file("ca.key"),
		"--service-account-signing-key-file=" + keys.file("ca.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		// Pods wait for the token controller, new nodes for node-lifecycle.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--endpoint-reconciler-type=none",
		"--shutdown-delay-duration=0s",
		"--enable-priority-and-fairness=false",
		"--max-requests-inflight=3000",
		"--max-mutating-requests-inflight=3000",
		"--allow-privileged=true",
	}
}

// awaitReady asks until /readyz answers ok.
func awaitReady(server string, keys *pki, ended <-chan error) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{TLSClientConfig: keys.trust()}}
	defer client.CloseIdleConnections()
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if response, err := client.Get(server + "/readyz"); err == nil {
			io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-ended:
			return fmt.Errorf("ended before it was ready: %w", err)
		case <-deadline:
			return fmt.Errorf("not ready after %v", patience)
		case <-tick.C:
		}
	}
}

// keepStderr is standard error as it was, for what this program itself says.
func keepStderr() *os.File {
	fd, err := syscall.Dup(syscall.Stderr)
	if err != nil {
		return os.Stderr
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "stderr")
}

// logTo points standard error, where klog and panics write, at a file.
func logTo(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := syscall.Dup2(int(file.Fd()), syscall.Stderr); err != nil {
		return fmt.Errorf("point standard error at %s: %w", path, err)
	}
	return nil
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
