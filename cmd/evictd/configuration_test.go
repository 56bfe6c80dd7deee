package main

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter"
)

// runSettings are the flags of `evictd run` as contract and kubelet have them:
// a value, the same in the configuration file, and another one there.
var runSettings = map[string]struct{ flag, file, other string }{
	"mode":                                {"observe", "mode: observe", "mode: takeover"},
	"dry-run":                             {"true", "dryRun: true", "dryRun: false"},
	"node-name":                           {"n1", "nodeName: n1", "nodeName: n2"},
	"cgroup-root":                         {"/a", "cgroupRoot: /a", "cgroupRoot: /b"},
	"pods-cgroup":                         {"a", "podsCgroup: a", "podsCgroup: b"},
	"pod-manifests":                       {"/a", "podManifests: /a", "podManifests: /b"},
	"kubeconfig":                          {"/a", "kubeconfig: /a", "kubeconfig: /b"},
	"server":                              {"unix:/a", "server: unix:/a", "server: unix:/b"},
	"cri-endpoint":                        {"none", "criEndpoint: none", "criEndpoint: unix:/b"},
	"runc-state":                          {"/a,/b", "runcState: /a,/b", "runcState: none"},
	"nodefs":                              {"/a", "nodefs: /a", "nodefs: /b"},
	"root-dir":                            {"/a", "nodefs: /a", "nodefs: /b"},
	"imagefs":                             {"/a", "imagefs: /a", "imagefs: /b"},
	"containerfs":                         {"/a", "containerfs: /a", "containerfs: /b"},
	"node-status-file":                    {"/a", "nodeStatusFile: /a", "nodeStatusFile: /b"},
	"housekeeping-interval":               {"3s", "housekeepingInterval: 3s", "housekeepingInterval: 4s"},
	"hard-eviction-grace-period":          {"0s", "hardEvictionGracePeriod: 0s", "hardEvictionGracePeriod: 1s"},
	"status-address":                      {"none", "statusAddress: none", "statusAddress: unix:/b"},
	"status-tls-cert-file":                {"/a", "statusTLSCertFile: /a", "statusTLSCertFile: /b"},
	"status-tls-private-key-file":         {"/a", "statusTLSPrivateKeyFile: /a", "statusTLSPrivateKeyFile: /b"},
	"status-client-ca-file":               {"/a", "statusClientCAFile: /a", "statusClientCAFile: /b"},
	"agent-address":                       {"unix:/a", "agentAddress: unix:/a", "agentAddress: unix:/b"},
	"runtime-dir":                         {"/a", "runtimeDir: /a", "runtimeDir: /b"},
	"state-dir":                           {"/a", "stateDir: /a", "stateDir: /b"},
	"soft-eviction":                       {"api", "softEviction: api", "softEviction: direct"},
	"soft-eviction-deadline":              {"1s", "softEvictionDeadline: 1s", "softEvictionDeadline: 2s"},
	"node-memory":                         {"1Gi", "nodeMemory: 1Gi", "nodeMemory: 2Gi"},
	"eviction-hard":                       {"memory.available<100Mi,nodefs.available<10%", "evictionHard: {memory.available: 100Mi, nodefs.available: 10%}", "evictionHard: {pid.available: 5%}"},
	"eviction-soft":                       {"memory.available<1Gi", "evictionSoft: {memory.available: 1Gi}", "evictionSoft: {memory.available: 2Gi}"},
	"eviction-soft-grace-period":          {"memory.available=1m", "evictionSoftGracePeriod: {memory.available: 1m}", "evictionSoftGracePeriod: {memory.available: 2m}"},
	"eviction-max-pod-grace-period":       {"30", "evictionMaxPodGracePeriod: 30", "evictionMaxPodGracePeriod: 40"},
	"eviction-minimum-reclaim":            {"memory.available=1Mi", "evictionMinimumReclaim: {memory.available: 1Mi}", "evictionMinimumReclaim: {memory.available: 2Mi}"},
	"eviction-pressure-transition-period": {"30s", "evictionPressureTransitionPeriod: 30s", "evictionPressureTransitionPeriod: 40s"},
	"system-reserved":                     {"memory=1Gi", "systemReserved: {memory: 1Gi}", "systemReserved: {memory: 2Gi}"},
	"kube-reserved":                       {"memory=1Gi,pid=100", "kubeReserved: {memory: 1Gi, pid: \"100\"}", "kubeReserved: {memory: 2Gi}"},
	"node-status-update-frequency":        {"20s", "nodeStatusUpdateFrequency: 20s", "nodeStatusUpdateFrequency: 30s"},
	"memory-high-tripwire":                {"true", "memoryHighTripwire: true", "memoryHighTripwire: false"},
	"oom-score-adj":                       {"true", "oomScoreAdj: true", "oomScoreAdj: false"},
	"kernel-memcg-notification":           {"true", "kernelMemcgNotification: true", "kernelMemcgNotification: false"},
}

func TestEveryFlagOfRunCanBeSetInTheFileAndWinsOverIt(t *testing.T) {
	load := func(text string) config.EvictdConfiguration {
		t.Helper()
		c, err := config.Load([]byte(configHeader + text + "\n"))
		require.NoError(t, err)
		return c
	}
	for name, s := range runSettings {
		t.Run(name, func(t *testing.T) {
			want := load(s.file)
			for _, file := range []string{"", s.other} {
				flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
				overrides := runFlags(flags)
				require.NoError(t, flags.Parse([]string{"--" + name + "=" + s.flag}))
				got := load(file)
				if file != "" && reflect.DeepEqual(got, want) {
					t.Errorf("%q and %q mean the same", file, s.file)
				}
				overrides.apply(&got)
				if !reflect.DeepEqual(got, want) {
					t.Errorf("over %q the flag comes to\n%+v\nwant that of the file\n%+v", file, got, want)
				}
			}
		})
	}
}

func TestTheFlagsOfRunAreThoseOfItsSettings(t *testing.T) {
	var got []string
	runCommand().Flags().VisitAll(func(f *pflag.Flag) { got = append(got, f.Name) })
	want := append(slices.Collect(maps.Keys(runSettings)), "config", "force")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestFlagsThatWereNotGivenChangeNothing(t *testing.T) {
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	overrides := runFlags(flags)
	require.NoError(t, flags.Parse(nil))
	var got config.EvictdConfiguration
	overrides.apply(&got)
	if !reflect.DeepEqual(got, config.EvictdConfiguration{}) {
		t.Errorf("%+v", got)
	}
}

func TestCheckConfigPrintsWhatAConfigurationComesTo(t *testing.T) {
	file := configHeader + `
evictionHard: {memory.available: 100Mi, nodefs.available: 10%}
evictionSoft: {memory.available: 50Mi}
evictionSoftGracePeriod: {memory.available: 1m30s}
evictionMinimumReclaim: {nodefs.available: 1Gi}
`
	text := say(t, file, "check-config", "--offline", "-")
	if text.code != 0 || text.err != "" {
		t.Fatalf("%+v", text)
	}
	golden.Check(t, "testdata/check-config.txt", text.out)
	machine := say(t, file, "check-config", "--offline", "-o", "json", "-")
	golden.Check(t, "testdata/check-config.json", machine.out)

	// The contract's example: its shape, and these values.
	flags := say(t, configHeader+"enforceNodeAllocatable: [none]\n", "check-config", "--offline", "-o", "json", "--eviction-hard", "memory.available<100Mi", "-")
	first, _, _ := strings.Cut(flags.out, `}`)
	if want := `{"thresholds":[{"signal":"memory.available","kind":"hard","value":"100Mi","gracePeriod":"0s","minReclaim":"0"`; first != want {
		t.Errorf("got\n%s\nwant\n%s", first, want)
	}
	var document map[string]json.RawMessage
	if err := json.Unmarshal([]byte(say(t, configHeader, "check-config", "--offline", "-o", "json", "-").out), &document); err != nil || string(document["warnings"]) != "[]" {
		t.Errorf("without warnings: %s, %v", document["warnings"], err)
	}
}

// TestTheDocumentsNameFlagsThatExist reads every command line and every flag that
// the README and the guides name.
func TestTheDocumentsNameFlagsThatExist(t *testing.T) {
	commands := map[string]*cobra.Command{}
	for _, c := range newCommand().Commands() {
		commands[c.Name()] = c
	}
	// Those of evictd-apiserver, a program that cannot be imported.
	apiserver := []string{"data", "listen", "sync"}
	anywhere := func(flag string) bool {
		if slices.Contains(apiserver, flag) {
			return true
		}
		programs := slices.Concat(slices.Collect(maps.Values(commands)), scheduleradapter.NewCommand("").Commands())
		return slices.ContainsFunc(programs, func(c *cobra.Command) bool { return c.Flags().Lookup(flag) != nil })
	}
	long := regexp.MustCompile("(?:^|[\\s`(])--([a-z][a-z-]*)")
	command := regexp.MustCompile("(?:^|[\\s`])evictd ([a-z][a-z-]*)((?: +[^\\s`#]+)*)")
	named := 0
	for _, document := range []string{"README.md", "docs/architecture.md", "docs/differences.md"} {
		text := require.ReadFile(t, "../../"+document)
		for line := range strings.Lines(string(text)) {
			for _, flag := range long.FindAllStringSubmatch(line, -1) {
				named++
				if !anywhere(flag[1]) {
					t.Errorf("%s: no command has --%s: %s", document, flag[1], line)
				}
			}
			for _, said := range command.FindAllStringSubmatch(line, -1) {
				c := commands[said[1]]
				if c == nil {
					if strings.HasPrefix(line, "    ") || strings.Contains(line, "`evictd "+said[1]) {
						t.Errorf("%s: there is no command %s: %s", document, said[1], line)
					}
					continue
				}
				for _, flag := range long.FindAllStringSubmatch(said[2], -1) {
					if c.Flags().Lookup(flag[1]) == nil {
						t.Errorf("%s: evictd %s has no --%s: %s", document, c.Name(), flag[1], line)
					}
				}
			}
		}
	}
	if named < 5 {
		t.Errorf("only %d flags were found in the documents", named)
	}
}
