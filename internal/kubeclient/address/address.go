// Package address checks how an API server is named on a command line. It never connects, reads no
// file, and does not import client-go.
package address

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// Check returns what is wrong with --kubeconfig and --server. Its error names the flag and what was expected.
func Check(kubeconfig, server string) error {
	socket, isSocket := strings.CutPrefix(server, "unix:")
	switch u, err := url.Parse(server); {
	case isSocket && kubeconfig != "":
		return fmt.Errorf("--server %s: the embedded API takes no credentials; expected no --kubeconfig beside it", server)
	case isSocket && !filepath.IsAbs(socket):
		return fmt.Errorf("--server %s: expected unix: and an absolute path", server)
	case server == "" || isSocket:
		return nil
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("--server %s: expected unix:PATH or a URL that begins with http:// or https://", server)
	}
	return nil
}
