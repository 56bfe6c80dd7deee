package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/evictd/evictd/internal/cli"
)

// tlsFiles are the files by which the API is served to other hosts: all of them, or none.
// They are read at the start.
type tlsFiles struct{ cert, key, clientCA string }

const (
	certFlag     = "tls-cert-file"
	keyFlag      = "tls-private-key-file"
	clientCAFlag = "client-ca-file"
)

func (f *tlsFiles) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.cert, certFlag, "", "certificate of the addresses that other hosts can reach, PEM; only clients with a certificate are answered there")
	flags.StringVar(&f.key, keyFlag, "", "its private key, PEM")
	flags.StringVar(&f.clientCA, clientCAFlag, "", "certificate authority of clients, PEM")
}

// config is nil where there are no files.
func (f *tlsFiles) config() (*tls.Config, error) {
	if *f == (tlsFiles{}) {
		return nil, nil
	}
	var faults []error
	for _, file := range [][2]string{{certFlag, f.cert}, {keyFlag, f.key}, {clientCAFlag, f.clientCA}} {
		if file[1] == "" {
			faults = append(faults, fmt.Errorf("--%s: expected a file", file[0]))
		}
	}
	if len(faults) > 0 {
		return nil, cli.BadInput(errors.Join(faults...))
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		faults = append(faults, fmt.Errorf("--%s %s, --%s %s: %w", certFlag, f.cert, keyFlag, f.key, err))
	}
	clients := x509.NewCertPool()
	switch text, err := os.ReadFile(f.clientCA); {
	case err != nil:
		faults = append(faults, fmt.Errorf("--%s: %w", clientCAFlag, err))
	case !clients.AppendCertsFromPEM(text):
		faults = append(faults, fmt.Errorf("--%s %s: expected certificates in PEM", clientCAFlag, f.clientCA))
	}
	if len(faults) > 0 {
		return nil, cli.BadInput(errors.Join(faults...))
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}, nil
}
