package scheduler

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

// Timing is how often something was done, and what that took in all.
type Timing struct {
	N       int
	Seconds float64
}

// Each is in milliseconds.
func (t Timing) Each() float64 {
	if t.N == 0 {
		return 0
	}
	return t.Seconds / float64(t.N) * 1000
}

// Counts are what a scheduler has done.
type Counts struct {
	// Attempts are from filters to scores or to victims, and Room is the making of room
	// within them.
	Attempts, Room Timing
	// Results are the attempts by their result, such as unschedulable.
	Results map[string]int
}

// Page is the metrics of a scheduler.
type Page struct {
	url    string
	client func() (*http.Client, error)
}

// metricsTimeout bounds a request.
const metricsTimeout = 10 * time.Second

func atSocket(path string) *Page {
	return &Page{"http://localhost/metrics", func() (*http.Client, error) {
		client := process.Client(path)
		client.Timeout = metricsTimeout
		return client, nil
	}}
}

// atAddress trusts the certificates of a file, which may be written later.
func atAddress(address, certificates string) *Page {
	return &Page{"https://" + address + "/metrics", func() (*http.Client, error) {
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

// Counts are those of now.
func (p *Page) Counts() (Counts, error) {
	client, err := p.client()
	if err != nil {
		return Counts{}, err
	}
	defer client.CloseIdleConnections()
	response, err := client.Get(p.url)
	if err != nil {
		return Counts{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return Counts{}, fmt.Errorf("read metrics: %s", response.Status)
	}
	return read(response.Body)
}

// read adds up lines of the text format of Prometheus; both schedulers have the names of
// kube-scheduler.
func read(page io.Reader) (Counts, error) {
	c := Counts{Results: map[string]int{}}
	lines := bufio.NewScanner(page)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue // a comment
		}
		postFilter := strings.Contains(name, `extension_point="PostFilter"`)
		switch metric, labels, _ := strings.Cut(name, "{"); {
		case metric == "scheduler_scheduling_algorithm_duration_seconds_sum":
			c.Attempts.Seconds += number
		case metric == "scheduler_scheduling_algorithm_duration_seconds_count":
			c.Attempts.N += int(number)
		case postFilter && metric == "scheduler_framework_extension_point_duration_seconds_sum":
			c.Room.Seconds += number
		case postFilter && metric == "scheduler_framework_extension_point_duration_seconds_count":
			c.Room.N += int(number)
		case metric == "scheduler_schedule_attempts_total":
			_, result, _ := strings.Cut(labels, `result="`)
			result, _, _ = strings.Cut(result, `"`)
			c.Results[result] += int(number)
		}
	}
	return c, lines.Err()
}
