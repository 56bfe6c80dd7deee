package node_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

// TestReadersDoNotDelayAnEviction has clients that ask without a pause while a pod crosses
// the threshold and continues to grow.
//
// rule: M.62
func TestReadersDoNotDelayAnEviction(t *testing.T) {
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	hog, bystander := n.Start("hog", sandbox.Spec{}), n.Start("bystander", sandbox.Spec{Request: "32Mi"})
	bystander.Do("hold 16Mi")
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"), longTransition)
	d.AwaitPods(memorySignal, hog, bystander)
	const clients = 24
	var reading, first sync.WaitGroup
	for i := range clients {
		path := []string{"/v1/explain?pod=bystander", "/v1/status", "/v1/why"}[i%3]
		first.Add(1)
		reading.Go(func() {
			asked := sync.OnceFunc(first.Done)
			for {
				select {
				case <-hog.Ended():
					asked()
					return
				default:
				}
				_, _ = d.Get(path) // it may be answered that there are too many
				asked()
			}
		})
	}
	first.Wait()
	hog.Send("hold 230Mi")
	hog.AwaitEnd()
	reading.Wait()
	d.AwaitGone(hog)
	d.MustHaveEvicted(hog)
	harness.MustRun(t, bystander)
	if kills := n.OOMKills(n.Group); kills != 0 {
		t.Errorf("the kernel has killed %d processes", kills)
	}
}

func TestSilentConnectionsKeepNoClientOutAndManyRequestsCostLittle(t *testing.T) {
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	pid := os.Getpid()
	address := fmt.Sprintf("127.%d.%d.%d:10256", 1+pid>>16&0x7f, pid>>8&0xff, pid&0xff)
	d := n.Evictd(sandbox.StatusAddress("unix:" + n.Socket() + "," + address))
	for i := range 2100 {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer conn.Close()
		if i >= 2000 {
			_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nX: "+strings.Repeat("x", 15<<10)) // less than is refused
			require.NoError(t, err)
		}
	}
	for _, path := range []string{"/healthz", "/v1/status", "/metrics"} {
		answer, err := http.Get("http://" + address + path)
		require.NoError(t, err)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
	var reading sync.WaitGroup
	for range 500 {
		reading.Go(func() {
			if answer, err := http.Get("http://" + address + "/metrics"); err == nil { // of too many at once the last are closed
				answer.Body.Close()
			}
		})
	}
	reading.Wait()
	most, err := strconv.Atoi(strings.TrimSuffix(procStatus(d, "VmHWM"), " kB"))
	if t.Logf("at most %d kB", most); err != nil || most > 64<<10 {
		t.Errorf("at most %d kB, %v", most, err)
	}
}
