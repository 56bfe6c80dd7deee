package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/evictd/evictd/internal/cli"
)

// Fetch gets a document from the status address of a running program, which errors
// name.
func Fetch(ctx context.Context, program, address, path string) ([]byte, error) {
	network, at, err := Split(address)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	client := http.Client{
		Timeout: Timeout,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, at)
		}},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+program+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("no %s answers at %s: %w", program, address, errors.Unwrap(err))
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s at %s: %s: %s", program, address, response.Status, strings.TrimSpace(string(body)))
	}
	return body, err
}
