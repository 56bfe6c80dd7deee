// Package secureserving serves the HTTPS port of kube-scheduler. The API server
// authenticates and authorizes the clients, by TokenReview and SubjectAccessReview. The
// option types of k8s.io/apiserver/pkg/server/options do the same, and add etcd, gRPC
// and 50 MB to the program; the packages used here add less than 1 MB.
package secureserving

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authorization/path"
	cliflag "k8s.io/component-base/cli/flag"
)

// Port is the default --secure-port of kube-scheduler.
const Port = 10259

// Options are the flags of kube-scheduler for its HTTPS port.
type Options struct {
	bindAddress        net.IP
	port               int // 0: not served
	certFile, keyFile  string
	minTLSVersion      string
	cipherSuites       []string
	clientCAFile       string
	authentication     string // kubeconfig; empty: in-cluster
	authorization      string // kubeconfig; empty: in-cluster
	skipLookup         bool
	tokenTTL           time.Duration
	allowTTL, denyTTL  time.Duration
	alwaysAllowedPaths []string
}

// Flags adds the flags, with the defaults of kube-scheduler; --secure-port is 0.
func Flags(flags *pflag.FlagSet) *Options {
	const ttl = 10 * time.Second
	o := &Options{}
	flags.IPVar(&o.bindAddress, "bind-address", net.IPv4zero, "address of --secure-port")
	flags.IntVar(&o.port, "secure-port", 0, fmt.Sprintf("HTTPS port with authentication and authorization; 0: none (default %d without the command run, as kube-scheduler)", Port))
	flags.StringVar(&o.certFile, "tls-cert-file", "", "certificate of --secure-port, PEM; read again when it changes (default self-signed, in memory)")
	flags.StringVar(&o.keyFile, "tls-private-key-file", "", "its private key, PEM")
	flags.StringVar(&o.minTLSVersion, "tls-min-version", "", "of --secure-port: VersionTLS12 or VersionTLS13 (default VersionTLS12)")
	flags.StringSliceVar(&o.cipherSuites, "tls-cipher-suites", nil, "of --secure-port, as for kube-scheduler")
	flags.StringVar(&o.clientCAFile, "client-ca-file", "", "certificate authority of clients of --secure-port, PEM (default that of the cluster)")
	flags.StringVar(&o.authentication, "authentication-kubeconfig", "", "kubeconfig for TokenReviews and to look up the cluster's client CA (default in-cluster)")
	flags.StringVar(&o.authorization, "authorization-kubeconfig", "", "kubeconfig for SubjectAccessReviews (default in-cluster)")
	flags.BoolVar(&o.skipLookup, "authentication-skip-lookup", false, "do not look up the cluster's client CA")
	flags.DurationVar(&o.tokenTTL, "authentication-token-webhook-cache-ttl", ttl, "how long the answer of a TokenReview is used")
	flags.DurationVar(&o.allowTTL, "authorization-webhook-cache-authorized-ttl", ttl, "how long an allowing SubjectAccessReview is used")
	flags.DurationVar(&o.denyTTL, "authorization-webhook-cache-unauthorized-ttl", ttl, "how long a denying SubjectAccessReview is used")
	flags.StringSliceVar(&o.alwaysAllowedPaths, "authorization-always-allow-paths", []string{"/healthz", "/readyz", "/livez"}, "paths of --secure-port without authorization; a trailing * matches a prefix")
	return o
}

// Serves is whether --secure-port is not 0.
func (o *Options) Serves() bool { return o.port != 0 }

// Validate reports all faults of the flags.
func (o *Options) Validate() error {
	var faults []error
	if o.port < 0 || o.port > 65535 {
		faults = append(faults, fmt.Errorf("--secure-port %d: expected 0 to 65535", o.port))
	}
	if (o.certFile == "") != (o.keyFile == "") {
		faults = append(faults, errors.New("--tls-cert-file and --tls-private-key-file: expected both, or none"))
	}
	if _, err := cliflag.TLSVersion(o.minTLSVersion); err != nil {
		faults = append(faults, fmt.Errorf("--tls-min-version: %w", err))
	}
	if _, err := cliflag.TLSCipherSuites(o.cipherSuites); err != nil {
		faults = append(faults, fmt.Errorf("--tls-cipher-suites: %w", err))
	}
	if _, err := path.NewAuthorizer(o.alwaysAllowedPaths); err != nil {
		faults = append(faults, fmt.Errorf("--authorization-always-allow-paths: %w", err))
	}
	return errors.Join(faults...)
}
