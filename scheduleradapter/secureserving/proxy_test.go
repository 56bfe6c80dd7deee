package secureserving

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/evictd/evictd/internal/require"
)

// selfSigned writes a certificate that is its own authority, for a name.
func selfSigned(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	dir := t.TempDir()
	chain, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	require.NoError(t, os.WriteFile(certFile, chain, 0o600))
	require.NoError(t, os.WriteFile(keyFile, key, 0o600))
	return certFile, keyFile
}

// rule: S8.39
func TestTheSecurePortServesHTTP2AndNamedCertificates(t *testing.T) {
	certFile, keyFile := selfSigned(t, "sched.example")
	for want, args := range map[string][]string{"HTTP/2.0": nil, "HTTP/1.1": {"--disable-http2-serving"}} {
		address := listen(t, append(args, "--tls-sni-cert-key="+certFile+","+keyFile)...)
		transport := &http.Transport{TLSClientConfig: insecure.Clone(), ForceAttemptHTTP2: true}
		response, err := (&http.Client{Transport: transport}).Get("https://" + address + "/livez")
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		if transport.CloseIdleConnections(); response.Proto != want || response.StatusCode != http.StatusOK {
			t.Errorf("%v: %s %s, want %s", args, response.Proto, response.Status, want)
		}
		for name, named := range map[string]bool{"sched.example": true, "other.example": false} {
			c := insecure.Clone()
			c.ServerName = name
			conn, err := tls.Dial("tcp", address, c)
			require.NoError(t, err)
			shown := conn.ConnectionState().PeerCertificates[0]
			require.NoError(t, conn.Close())
			if got := shown.VerifyHostname("sched.example") == nil; got != named {
				t.Errorf("a client that asks for %s gets the certificate of %v", name, shown.DNSNames)
			}
		}
	}
}

// rule: S8.38
func TestAFrontProxySendsTheUser(t *testing.T) {
	proxyCert, proxyKey := clientCertificate(t, "proxy")
	strangeCert, strangeKey := clientCertificate(t, "other")
	ca := filepath.Join(t.TempDir(), "ca.crt")
	var both []byte
	for _, file := range []string{proxyCert, strangeCert} {
		text := require.ReadFile(t, file)
		both = append(both, text...)
	}
	require.NoError(t, os.WriteFile(ca, both, 0o600))
	address := listen(t, "--requestheader-client-ca-file="+ca, "--requestheader-allowed-names=proxy")
	get := func(certFile, keyFile, user string) (int, string) {
		t.Helper()
		c := insecure.Clone()
		if certFile != "" {
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			require.NoError(t, err)
			c.Certificates = []tls.Certificate{pair}
		}
		request, err := http.NewRequest(http.MethodGet, "https://"+address+"/metrics", nil)
		require.NoError(t, err)
		request.Header.Set("X-Remote-User", user)
		request.Header.Set("X-Remote-Group", "system:masters")
		response, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}).Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
	if status, body := get(proxyCert, proxyKey, "jane"); status != http.StatusOK || body != "served" {
		t.Errorf("the user of the front proxy gets %d %s", status, body)
	}
	if status, body := get("", "", "jane"); status != http.StatusForbidden || !strings.Contains(body, "system:anonymous") {
		t.Errorf("headers without a certificate: %d %s", status, body)
	}
	if status, body := get(strangeCert, strangeKey, "jane"); status == http.StatusOK {
		t.Errorf("headers with a certificate of another name: %d %s", status, body)
	}
}

// clientCertificate writes a certificate for a client that is its own authority.
func clientCertificate(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), 0o600))
	return certFile, keyFile
}
