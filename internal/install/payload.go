package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Where things are on the host.
const (
	configPath     = "/etc/evictd/evictd.yaml"
	kubeconfigPath = "/etc/evictd/kubeconfig"
	tokenPath      = "/etc/evictd/token"
	stateDir       = "/var/lib/evictd"
	runtimeDir     = "/run/evictd"
	unitDir        = "/etc/systemd/system"
)

// service is the unit that everything else is for.
const service = "evictd.service"

// units are enabled, in the order in which they start.
var units = []string{"evictd.socket", "evictd-agent.socket", service}

// unitFiles are those of a node, with what belongs to them.
var unitFiles = []string{
	"evictd.service", "evictd.service.d/50-kernel-log.conf", "evictd.socket", "evictd.slice", "evictd-agent.socket", "evictd-agent@.service",
}

// programs of a node.
var programs = []string{"evictd", "evictd-agent"}

// Image says where this image has what it installs, and where the pod has the rest.
type Image struct {
	Programs      string // directory of the programs
	Share         string // directory of the units
	Configuration string // file of an EvictdConfiguration
	Token, CA     string // files of the service account
	Server        string // URL of the API server
	NodeName      string
}

// program is the path of a program on the host.
func program(prefix, name string) string { return filepath.Join(prefix, "bin", name) }

// arguments of evictd beside its configuration, which is the same on every node.
func (i Image) arguments() []string {
	return []string{"--kubeconfig", kubeconfigPath, "--node-name", i.NodeName}
}

// files are what every host gets.
func (i Image) files(prefix string) ([]File, error) {
	var all []File
	for _, name := range programs {
		all = append(all, File{Path: program(prefix, name), Mode: 0o755, Source: filepath.Join(i.Programs, name)})
	}
	config, err := os.ReadFile(i.Configuration)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	token, err := os.ReadFile(i.Token)
	if err != nil {
		return nil, fmt.Errorf("read the token: %w", err)
	}
	kubeconfig, err := i.kubeconfig()
	if err != nil {
		return nil, err
	}
	all = append(all,
		File{Path: configPath, Mode: 0o644, Content: config},
		File{Path: kubeconfigPath, Mode: 0o600, Content: kubeconfig},
		File{Path: tokenPath, Mode: 0o600, Content: token})
	return all, nil
}

// units are those of the image with the programs' place on this host. Neither of them needs a
// user that the host has: the agent gets one as long as it runs.
func (i Image) units(prefix string) ([]File, error) {
	const arguments = " --agent-address unix:/run/evictd/agent.sock"
	replace := strings.NewReplacer(
		"/usr/bin/evictd", program(prefix, "evictd"),
		arguments+"\n", arguments+" "+strings.Join(i.arguments(), " ")+"\n",
		"\nUser=evictd\n", "\nUser=evictd\nDynamicUser=yes\n",
		"\nSocketGroup=evictd\n", "\nSocketGroup=root\n",
	)
	var all []File
	for _, name := range unitFiles {
		text, err := os.ReadFile(filepath.Join(i.Share, name))
		if err != nil {
			return nil, fmt.Errorf("read unit: %w", err)
		}
		all = append(all, File{Path: filepath.Join(unitDir, name), Mode: 0o644, Content: []byte(replace.Replace(string(text)))})
	}
	text, err := os.ReadFile(filepath.Join(i.Share, "evictd.tmpfiles"))
	if err != nil {
		return nil, fmt.Errorf("read the directories of units: %w", err)
	}
	return append(all, File{Path: "/etc/tmpfiles.d/evictd.conf", Mode: 0o644, Content: text}), nil
}

// kubeconfig has the token in a file of its own, which changes.
func (i Image) kubeconfig() ([]byte, error) {
	ca, err := os.ReadFile(i.CA)
	if err != nil {
		return nil, fmt.Errorf("read the CA of the API server: %w", err)
	}
	if i.Server == "" {
		return nil, errors.New("no API server: expected --server URL, or KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT")
	}
	type object map[string]any
	text, err := json.MarshalIndent(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "evictd",
		"clusters": []object{{"name": "evictd", "cluster": object{"server": i.Server, "certificate-authority-data": ca}}},
		"users":    []object{{"name": "evictd", "user": object{"tokenFile": tokenPath}}},
		"contexts": []object{{"name": "evictd", "context": object{"cluster": "evictd", "user": "evictd"}}},
	}, "", "  ")
	return append(text, '\n'), err
}
