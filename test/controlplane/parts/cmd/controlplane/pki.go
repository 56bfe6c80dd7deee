package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// validity of every certificate: a control plane of tests gets no older.
const validity = 30 * 24 * time.Hour

// pki is a certificate authority in a directory. Its key also signs service
// account tokens.
type pki struct {
	dir string
	ca  *x509.Certificate
	key crypto.Signer
}

// openPKI creates the authority and the server's certificate, or reads the existing
// ones.
func openPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &pki{dir: dir}
	pair, err := tls.LoadX509KeyPair(p.file("ca.crt"), p.file("ca.key"))
	if errors.Is(err, fs.ErrNotExist) {
		return p, p.make()
	}
	if err != nil {
		return nil, fmt.Errorf("read the authority in %s: %w", dir, err)
	}
	p.ca, p.key = pair.Leaf, pair.PrivateKey.(crypto.Signer)
	return p, nil
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

func (p *pki) make() error {
	certificate, key, err := p.sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "controlplane-ca"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	})
	if err != nil {
		return err
	}
	serverCertificate, serverKey, err := p.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
	})
	if err != nil {
		return err
	}
	// The authority's certificate comes last: where it is, all is.
	for _, f := range []struct {
		name string
		pem  []byte
	}{
		{"apiserver.crt", serverCertificate}, {"apiserver.key", serverKey}, {"ca.key", key}, {"ca.crt", certificate},
	} {
		if err := os.WriteFile(p.file(f.name), f.pem, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// sign issues a certificate with a key of its own, both as PEM. The first is
// signed by itself and becomes the authority.
func (p *pki) sign(template *x509.Certificate) (certificate, privateKey []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, err
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(validity)
	authority, signer := p.ca, p.key
	if authority == nil {
		authority, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), signer)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	if p.ca == nil {
		if p.ca, err = x509.ParseCertificate(der); err != nil {
			return nil, nil, err
		}
		p.key = key
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), nil
}

// trust verifies the server.
func (p *pki) trust() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(p.ca)
	return &tls.Config{RootCAs: roots}
}

// writeKubeconfig writes how the identity reaches the server.
func (p *pki) writeKubeconfig(path, server string, id identity) error {
	certificate, key, err := p.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: id.user, Organization: id.groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return err
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.ca.Raw})
	const name = "controlplane"
	return clientcmd.WriteToFile(api.Config{
		Clusters:       map[string]*api.Cluster{name: {Server: server, CertificateAuthorityData: authority}},
		AuthInfos:      map[string]*api.AuthInfo{name: {ClientCertificateData: certificate, ClientKeyData: key}},
		Contexts:       map[string]*api.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, path)
}
