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
	sni                []cliflag.NamedCertKey
	withoutHTTP2       bool
	maxStreams         int // of an HTTP/2 connection; 0: 250
	proxy              frontProxy
}

// frontProxy authenticates users for their requests: it has a certificate of the authority and one
// of the names, and sends the user in headers. Without caFile there is none.
type frontProxy struct {
	caFile                                 string
	allowedNames                           []string // empty: any
	usernames, uids, groups, extraPrefixes []string
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
	flags.Var(cliflag.NewNamedCertKeyArray(&o.sni), "tls-sni-cert-key", "certificate and private key of --secure-port for further names, as FILE,FILE or FILE,FILE:NAME,NAME; may be repeated")
	flags.BoolVar(&o.withoutHTTP2, "disable-http2-serving", false, "serve --secure-port by HTTP/1.1 only")
	flags.IntVar(&o.maxStreams, "http2-max-streams-per-connection", 0, fmt.Sprintf("of --secure-port; 0: %d", defaultStreams))
	flags.StringVar(&o.proxy.caFile, "requestheader-client-ca-file", "", "certificate authority of front proxies, PEM; a front proxy sends users in headers")
	flags.StringSliceVar(&o.proxy.allowedNames, "requestheader-allowed-names", nil, "common names of the certificates of front proxies; none: any")
	flags.StringSliceVar(&o.proxy.usernames, "requestheader-username-headers", []string{"x-remote-user"}, "headers with the name of the user")
	flags.StringSliceVar(&o.proxy.uids, "requestheader-uid-headers", nil, "headers with the UID of the user")
	flags.StringSliceVar(&o.proxy.groups, "requestheader-group-headers", []string{"x-remote-group"}, "headers with groups of the user")
	flags.StringSliceVar(&o.proxy.extraPrefixes, "requestheader-extra-headers-prefix", []string{"x-remote-extra-"}, "prefixes of headers with extra information about the user")
	return o
}

// defaultStreams is --http2-max-streams-per-connection where it is 0, as in kube-scheduler.
const defaultStreams = 250

// Serves is whether --secure-port is not 0.
func (o *Options) Serves() bool { return o.port != 0 }

// Validate reports all faults of the flags.
func (o *Options) Validate() error {
	var faults []error
	if o.port < 0 || o.port > 65535 {
		faults = append(faults, fmt.Errorf("--secure-port %d: expected 0 to 65535", o.port))
	}
	if o.maxStreams < 0 {
		faults = append(faults, fmt.Errorf("--http2-max-streams-per-connection %d: expected 0 or more", o.maxStreams))
	}
	if o.proxy.caFile != "" && len(o.proxy.usernames) == 0 {
		faults = append(faults, errors.New("--requestheader-username-headers: expected a header with --requestheader-client-ca-file"))
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
