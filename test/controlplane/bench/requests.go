package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
)

var requests = regexp.MustCompile(`^apiserver_request_total\{.*[{,]resource="([a-z]*)",.*verb="([A-Z]*)".*\} (\S+)$`)

// countWrites counts the writing requests that a kube-apiserver has answered: those of
// events, and the others but those of Leases.
func (b *bench) countWrites(ctx context.Context, client kubernetes.Interface) (writes, events int, err error) {
	if b.on != kubeAPIServer {
		return 0, 0, nil
	}
	page, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").DoRaw(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("read the metrics of the API server: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(page))
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "apiserver_request_total") {
			continue
		}
		found := requests.FindStringSubmatch(lines.Text())
		if found == nil || !slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, found[2]) {
			continue
		}
		n, err := strconv.ParseFloat(found[3], 64)
		if err != nil {
			return 0, 0, err
		}
		switch found[1] {
		case "events":
			events += int(n)
		case "leases":
		default:
			writes += int(n)
		}
	}
	return writes, events, lines.Err()
}
