package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/embeddedapi"
)

// tlsFiles are the files by which the API is served to other hosts: a certificate with its key, and
// the authority of clients or their tokens, or none. They are read at the start.
type tlsFiles struct{ cert, key, clientCA, tokens string }

const (
	certFlag     = "tls-cert-file"
	keyFlag      = "tls-private-key-file"
	clientCAFlag = "client-ca-file"
	tokensFlag   = "token-auth-file"
)

func (f *tlsFiles) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.cert, certFlag, "", "certificate of the addresses that other hosts can reach, PEM; only clients with a certificate or a token are answered there")
	flags.StringVar(&f.key, keyFlag, "", "its private key, PEM")
	flags.StringVar(&f.clientCA, clientCAFlag, "", "certificate authority of clients, PEM")
	flags.StringVar(&f.tokens, tokensFlag, "", `tokens of clients, a line each: token,user,uid,"group1,group2"`)
}

// config is nil where there are no files.
func (f *tlsFiles) config() (*tls.Config, embeddedapi.Tokens, error) {
	if *f == (tlsFiles{}) {
		return nil, nil, nil
	}
	var faults []error
	for _, file := range [][2]string{{certFlag, f.cert}, {keyFlag, f.key}} {
		if file[1] == "" {
			faults = append(faults, fmt.Errorf("--%s: expected a file", file[0]))
		}
	}
	if f.clientCA == "" && f.tokens == "" {
		faults = append(faults, fmt.Errorf("--%s or --%s: expected a file", clientCAFlag, tokensFlag))
	}
	if len(faults) > 0 {
		return nil, nil, cli.BadInput(errors.Join(faults...))
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		faults = append(faults, fmt.Errorf("--%s %s, --%s %s: %w", certFlag, f.cert, keyFlag, f.key, err))
	}
	clients, err := f.authorities()
	faults = append(faults, err)
	tokens, err := f.readTokens()
	faults = append(faults, err)
	if err := errors.Join(faults...); err != nil {
		return nil, nil, cli.BadInput(err)
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	switch {
	case f.clientCA == "":
		secure.ClientAuth = tls.NoClientCert
	case f.tokens != "":
		secure.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return secure, tokens, nil
}

func (f *tlsFiles) authorities() (*x509.CertPool, error) {
	if f.clientCA == "" {
		return nil, nil
	}
	clients := x509.NewCertPool()
	switch text, err := os.ReadFile(f.clientCA); {
	case err != nil:
		return nil, fmt.Errorf("--%s: %w", clientCAFlag, err)
	case !clients.AppendCertsFromPEM(text):
		return nil, fmt.Errorf("--%s %s: expected certificates in PEM", clientCAFlag, f.clientCA)
	}
	return clients, nil
}

func (f *tlsFiles) readTokens() (embeddedapi.Tokens, error) {
	if f.tokens == "" {
		return nil, nil
	}
	file, err := os.Open(f.tokens)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", tokensFlag, err)
	}
	defer file.Close()
	return embeddedapi.ReadTokens(file, "--"+tokensFlag+" "+f.tokens)
}
