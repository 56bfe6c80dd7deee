package secureserving

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	expiring "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/evictd/evictd/internal/serve"
)

const (
	// maxConnections and maxHeader, in bytes, bound the memory that clients without
	// rights use.
	maxConnections = 256
	maxHeader      = 32 << 10
	// writeTimeout is without the time of a profile, which net/http/pprof adds.
	writeTimeout = 3 * serve.Timeout
	idleTimeout  = time.Minute
)

// Server is the HTTPS port. A nil Server serves nothing.
type Server struct {
	// Handler answers authorized requests; it is set before Serve.
	Handler http.Handler

	listener     net.Listener
	certificates *dynamiccertificates.DynamicServingCertificateController
	reread       []dynamiccertificates.ControllerRunner // files and ConfigMap
	authenticate authenticator.Request
	authorize    *authorization
	streams      int // of an HTTP/2 connection
	log          *slog.Logger
}

// Listen takes the port, so that a busy one is reported at the start. Without
// --secure-port the Server is nil.
func Listen(o *Options, log *slog.Logger) (*Server, error) {
	if !o.Serves() {
		return nil, nil
	}
	tokens, unreachable := delegate("authentication-kubeconfig", o.authentication, "no token is accepted, and no client CA is looked up in the cluster", log)
	access, unreachableToo := delegate("authorization-kubeconfig", o.authorization, "only system:masters and --authorization-always-allow-paths are allowed", log)
	if err := errors.Join(unreachable, unreachableToo); err != nil {
		return nil, err
	}
	clients, err := o.clientCA(tokens)
	if err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	proxies, err := o.proxyCA()
	if err != nil {
		return nil, fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	always, err := path.NewAuthorizer(o.alwaysAllowedPaths)
	if err != nil {
		return nil, fmt.Errorf("--authorization-always-allow-paths: %w", err)
	}
	s := &Server{
		log: log, streams: cmp.Or(o.maxStreams, defaultStreams), authenticate: o.authenticator(tokens, clients, proxies),
		authorize: &authorization{o.allowTTL, o.denyTTL, always, access, expiring.NewLRUExpireCache(keptReviews)},
	}
	if err := s.secure(o, clients, proxies); err != nil {
		return nil, err
	}
	if s.listener, err = net.Listen("tcp", net.JoinHostPort(o.bindAddress.String(), strconv.Itoa(o.port))); err != nil {
		return nil, fmt.Errorf("--secure-port: %w", err)
	}
	return s, nil
}

// secure makes the certificates of the port.
func (s *Server) secure(o *Options, authorities ...clientCA) error {
	base := &tls.Config{ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}}
	if o.withoutHTTP2 {
		base.NextProtos = base.NextProtos[1:]
	}
	var unknown, unsupported, unreadable error
	base.MinVersion, unknown = cliflag.TLSVersion(o.minTLSVersion)
	base.CipherSuites, unsupported = cliflag.TLSCipherSuites(o.cipherSuites)
	own, unreadable := o.certificate()
	names, unreadableToo := o.namedCertificates()
	if err := errors.Join(unknown, unsupported, unreadable, unreadableToo); err != nil {
		return err
	}
	var given []dynamiccertificates.CAContentProvider
	for _, ca := range authorities {
		if ca != nil {
			given, s.reread = append(given, ca), append(s.reread, ca)
		}
	}
	var authority dynamiccertificates.CAContentProvider // nil: there is none
	if len(given) > 0 {
		authority = dynamiccertificates.NewUnionCAContentProvider(given...)
	}
	s.certificates = dynamiccertificates.NewDynamicServingCertificateController(base, authority, own, names, nil)
	for _, ca := range given {
		ca.AddListener(s.certificates)
	}
	for _, named := range names {
		named.AddListener(s.certificates)
		s.reread = append(s.reread, named.(dynamiccertificates.ControllerRunner))
	}
	own.AddListener(s.certificates)
	if files, ok := own.(dynamiccertificates.ControllerRunner); ok {
		s.reread = append(s.reread, files)
	}
	return s.certificates.RunOnce()
}

// namedCertificates are those of --tls-sni-cert-key.
func (o *Options) namedCertificates() (all []dynamiccertificates.SNICertKeyContentProvider, err error) {
	for _, pair := range o.sni {
		named, unreadable := dynamiccertificates.NewDynamicSNIContentFromFiles("sni-serving-cert", pair.CertFile, pair.KeyFile, pair.Names...)
		if unreadable != nil {
			err = errors.Join(err, fmt.Errorf("--tls-sni-cert-key: %w", unreadable))
			continue
		}
		all = append(all, named)
	}
	return all, err
}

// certificate is that of the files, or a self-signed one for the address.
func (o *Options) certificate() (dynamiccertificates.CertKeyContentProvider, error) {
	if o.certFile != "" {
		return dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert", o.certFile, o.keyFile)
	}
	addresses := []net.IP{net.IPv4(127, 0, 0, 1)}
	if !o.bindAddress.IsUnspecified() {
		addresses = append(addresses, o.bindAddress)
	}
	pem, key, err := cert.GenerateSelfSignedCertKey("localhost", addresses, []string{"localhost"})
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return dynamiccertificates.NewStaticCertKeyContent("self-signed", pem, key)
}

// Serve answers until the context ends.
func (s *Server) Serve(ctx context.Context) {
	if s == nil {
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, r := range s.reread {
		running.Go(func() { r.Run(ctx, 1) })
	}
	running.Go(func() { s.certificates.Run(1, ctx.Done()) })
	server := http.Server{
		Handler: serve.BodyInTime(s), ConnState: serve.Track, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: serve.Timeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // faults of clients
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: s.streams},
	}
	defer context.AfterFunc(ctx, func() {
		shutdown, cancel := context.WithTimeout(context.Background(), serve.Timeout)
		defer cancel()
		if server.Shutdown(shutdown) != nil {
			server.Close()
		}
	})()
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: s.certificates.GetConfigForClient}
	secured := tls.NewListener(serve.Bound(s.listener, maxConnections), tlsConfig)
	if err := server.Serve(secured); !errors.Is(err, http.ErrServerClosed) {
		s.log.Error("the secure port is lost", "address", s.listener.Addr().String(), "error", err)
	}
}

// ServeHTTP passes on the requests of clients that are authenticated and authorized.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-cache, private")
	by, ok, err := s.authenticate.AuthenticateRequest(r)
	if err != nil || !ok {
		s.log.Debug("a client is not authenticated", "error", err)
		refuse(w, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	verb := strings.ToLower(r.Method)
	allowed, reason, err := s.authorize.allows(r.Context(), by.User, verb, r.URL.Path)
	switch {
	case err != nil:
		s.log.Debug("a client is not authorized", "error", err)
		refuse(w, apierrors.NewInternalError(errors.New("the API server does not answer whether the client is authorized")))
	case !allowed:
		text := fmt.Sprintf("User %q cannot %s path %q", by.User.GetName(), verb, r.URL.Path)
		if reason != "" {
			text += ": " + reason
		}
		refuse(w, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(text)))
	default:
		s.Handler.ServeHTTP(w, r)
	}
}

// refuse answers with a Status, as the API server does, and closes the connection: over
// HTTP/2 a client without rights sends many requests at once.
func refuse(w http.ResponseWriter, why *apierrors.StatusError) {
	status := why.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Connection", "close")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(&status)
}
