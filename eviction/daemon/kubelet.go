package daemon

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Kubelet is a kubelet that runs on this host, inside whatever program.
type Kubelet struct {
	PID     int    // zero if its process is not to be seen from here
	Program string // its name, of 15 bytes at most; "" without a PID
	Holds   string // what it is recognized by
}

// Found reports whether there is a kubelet.
func (k Kubelet) Found() bool { return k.Holds != "" }

// String names the program and what it holds.
func (k Kubelet) String() string {
	if k.PID == 0 {
		return "a kubelet runs here, which " + k.Holds
	}
	return fmt.Sprintf("a kubelet runs here: %s, pid %d, %s", k.Program, k.PID, k.Holds)
}

// kubeletDirs are the directories of kubelets (--root-dir): of the kubelet itself, also inside k3s,
// microshift and edgecore, of k0s, of kubelite in microk8s, and of edgecore before version 1.12.
var kubeletDirs = []string{"/var/lib/kubelet", "/var/lib/k0s/kubelet", "/var/snap/microk8s/common/var/lib/kubelet", "/var/lib/edged"}

// kubeletSockets are those that a kubelet listens on below its directory: for device plugins and for
// the readers of pods' resources.
var kubeletSockets = []string{"device-plugins/kubelet.sock", "pod-resources/kubelet.sock"}

// kubeletPort is where a kubelet serves its API.
const kubeletPort = 10250

// FindKubelet finds a kubelet on this host. dirs are directories beside the usual ones that may be
// its, such as that of --nodefs.
//
// A kubelet is a process of root that listens on a socket of a kubelet's directory, or outside of
// containers on the port of a kubelet's API, or is called kubelet and may be about to. What a
// process of another user holds or calls itself counts for nothing.
func FindKubelet(dirs ...string) Kubelet { return host{"/proc", "/"}.kubelet(dirs...) }

// host is where to look: procfs, and the root directory.
type host struct{ proc, root string }

func (h host) kubelet(dirs ...string) Kubelet {
	candidates := h.processesOfRoot()
	dirs = slices.Concat(kubeletDirs, dirs)
	for _, p := range candidates {
		if p.name == "kubelet" && !p.contained {
			return Kubelet{p.pid, p.name, "known by its name"}
		}
		if dir := p.flag("--root-dir"); filepath.IsAbs(dir) && !p.contained {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range dirs {
		for _, socket := range kubeletSockets {
			path := filepath.Join(h.root, dir, socket)
			if pid, ofRoot := listener(path); ofRoot {
				return Kubelet{pid, h.name(pid), "listens on " + path}
			}
		}
	}
	inodes := h.listeners(kubeletPort)
	for _, p := range candidates {
		if len(inodes) > 0 && !p.contained && h.holds(p.pid, inodes) {
			return Kubelet{p.pid, p.name, fmt.Sprintf("listens on port %d", kubeletPort)}
		}
	}
	return Kubelet{}
}

// rootProcess is a process whose effective user is root of this user namespace.
type rootProcess struct {
	pid       int
	name      string
	contained bool // it has a PID namespace of its own
	arguments []string
}

// flag is the value of a flag among the arguments, "" without it.
func (p *rootProcess) flag(name string) string {
	for i, argument := range p.arguments {
		if value, is := strings.CutPrefix(argument, name+"="); is {
			return value
		}
		if argument == name && i+1 < len(p.arguments) {
			return p.arguments[i+1]
		}
	}
	return ""
}

func (h host) processesOfRoot() (found []rootProcess) {
	statuses, _ := filepath.Glob(h.proc + "/[0-9]*/status")
	for _, file := range statuses {
		status, err := os.ReadFile(file)
		users := strings.Fields(statusField(status, "Uid"))
		if err != nil || len(users) < 2 || users[1] != "0" || strings.HasPrefix(statusField(status, "State"), "Z") {
			continue
		}
		dir := filepath.Dir(file)
		pid, _ := strconv.Atoi(filepath.Base(dir))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		found = append(found, rootProcess{
			pid, statusField(status, "Name"), len(strings.Fields(statusField(status, "NSpid"))) != 1, strings.Split(string(line), "\x00"),
		})
	}
	return found
}

func (h host) name(pid int) string {
	status, _ := os.ReadFile(filepath.Join(h.proc, strconv.Itoa(pid), "status"))
	return statusField(status, "Name")
}

// listener is the process that listens on a unix socket, and whether its user is root.
func listener(path string) (pid int, ofRoot bool) {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return 0, false
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, false
	}
	_ = raw.Control(func(fd uintptr) {
		if peer, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid, ofRoot = int(peer.Pid), peer.Uid == 0
		}
	})
	return pid, ofRoot
}

// listeners are the inodes of root's sockets that listen on a port, in the network namespace of the
// first process: lines of "NUMBER: ADDRESS:PORT REMOTE STATE QUEUES TIMER RETRIES UID TIMEOUT INODE" (proc_pid_net(5)).
func (h host) listeners(port int) (inodes []string) {
	const listening = "0A"
	for _, table := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(filepath.Join(h.proc, "1/net", table))
		for line := range bytes.Lines(text) {
			f := strings.Fields(string(line))
			if len(f) > 9 && f[3] == listening && f[7] == "0" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				inodes = append(inodes, f[9])
			}
		}
	}
	return inodes
}

// holds reports whether a process has one of the sockets open.
func (h host) holds(pid int, inodes []string) bool {
	links, _ := filepath.Glob(filepath.Join(h.proc, strconv.Itoa(pid), "fd/*"))
	return slices.ContainsFunc(links, func(link string) bool {
		target, _ := os.Readlink(link)
		inode, is := strings.CutPrefix(target, "socket:[")
		return is && slices.Contains(inodes, strings.TrimSuffix(inode, "]"))
	})
}
