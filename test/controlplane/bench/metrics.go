package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/evictd/evictd/internal/process"
)

// timing is how often something was done, and what that took in all.
type timing struct {
	n       int
	seconds float64
}

// each is in milliseconds.
func (t timing) each() float64 {
	if t.n == 0 {
		return 0
	}
	return t.seconds / float64(t.n) * 1000
}

// page is the metrics of a scheduler.
type page struct {
	url    string
	client func() (*http.Client, error)
}

// metricsTimeout bounds a request.
const metricsTimeout = 10 * time.Second

func atSocket(path string) *page {
	return &page{"http://localhost/metrics", func() (*http.Client, error) {
		client := process.Client(path)
		client.Timeout = metricsTimeout
		return client, nil
	}}
}

// atAddress trusts the certificates of a file, which may be written later.
func atAddress(address, certificates string) *page {
	return &page{"https://" + address + "/metrics", func() (*http.Client, error) {
		text, err := os.ReadFile(certificates)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate", certificates)
		}
		return &http.Client{Timeout: metricsTimeout, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}, nil
	}}
}

// timings are those of attempts, filters to scores or to victims, and within them
// of making room.
func (p *page) timings() (attempts, room timing, err error) {
	client, err := p.client()
	if err != nil {
		return attempts, room, err
	}
	defer client.CloseIdleConnections()
	response, err := client.Get(p.url)
	if err != nil {
		return attempts, room, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return attempts, room, fmt.Errorf("read metrics: %s", response.Status)
	}
	return readTimings(response.Body)
}

// readTimings adds up lines of the text format of Prometheus; both schedulers have
// the names of kube-scheduler.
func readTimings(page io.Reader) (attempts, room timing, err error) {
	lines := bufio.NewScanner(page)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue // a comment
		}
		postFilter := strings.Contains(name, `extension_point="PostFilter"`)
		switch metric, _, _ := strings.Cut(name, "{"); {
		case metric == "scheduler_scheduling_algorithm_duration_seconds_sum":
			attempts.seconds += number
		case metric == "scheduler_scheduling_algorithm_duration_seconds_count":
			attempts.n += int(number)
		case postFilter && metric == "scheduler_framework_extension_point_duration_seconds_sum":
			room.seconds += number
		case postFilter && metric == "scheduler_framework_extension_point_duration_seconds_count":
			room.n += int(number)
		}
	}
	return attempts, room, lines.Err()
}
