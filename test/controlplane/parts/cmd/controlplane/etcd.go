package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd runs an etcd of one member in a directory, on sockets in there, and
// returns it ready, with the endpoint that clients use.
func startEtcd(dir, log string) (*embed.Etcd, string, error) {
	client := url.URL{Scheme: "unix", Path: filepath.Join(dir, "etcd-client.sock")}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(dir, "etcd-peer.sock")}
	config := embed.NewConfig()
	config.Dir = filepath.Join(dir, "etcd")
	config.Name = "controlplane"
	config.LogLevel = "warn"
	config.LogOutputs = []string{log}
	config.UnsafeNoFsync = true
	config.TickMs, config.ElectionMs = 10, 100 // a lone member need not wait long for its own vote
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, "", err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, client.String(), nil
	case err = <-etcd.Err():
	case <-time.After(patience):
		err = fmt.Errorf("not ready after %v", patience)
	}
	etcd.Close()
	return nil, "", err
}
