package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

// certificates writes an authority and a certificate that it signs, for a server on
// loopback and for clients, and returns the paths of the authority, the certificate and its key.
func certificates(t *testing.T) (authority, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	sign := func(of, by *x509.Certificate, with *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		if with == nil {
			with = own
		}
		of.SerialNumber, of.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, of, by, own.Public(), with)
		require.NoError(t, err)
		return own, der
	}
	root := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	rootKey, rootDER := sign(root, root, nil)
	root, err := x509.ParseCertificate(rootDER)
	require.NoError(t, err)
	leafKey, leafDER := sign(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, root, rootKey)
	keyDER, err := x509.MarshalECPrivateKey(leafKey)
	require.NoError(t, err)
	return write("ca.pem", "CERTIFICATE", rootDER), write("cert.pem", "CERTIFICATE", leafDER), write("key.pem", "EC PRIVATE KEY", keyDER)
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// TestOtherHostsAreServedByCertificate serves all addresses and connects to loopback: the
// address that is listened on decides.
func TestOtherHostsAreServedByCertificate(t *testing.T) {
	authority, cert, key := certificates(t)
	_, foreignCert, foreignKey := certificates(t)
	port := freePort(t)
	c := exec.Command(os.Args[0], "--data", filepath.Join(shortDir(t), "data"), "--listen", "0.0.0.0:"+port,
		"--tls-cert-file", cert, "--tls-private-key-file", key, "--client-ca-file", authority)
	c.Env = append(os.Environ(), runAsProgram+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, c.Start())
	defer func() {
		c.Process.Kill()
		c.Wait()
	}()
	client := func(certFile, keyFile string) *kubernetes.Clientset {
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://127.0.0.1:" + port, TLSClientConfig: rest.TLSClientConfig{CAFile: authority, CertFile: certFile, KeyFile: keyFile}})
		require.NoError(t, err)
		return client
	}
	known := client(cert, key)
	wait.Until(t, "the API to be served", func() bool {
		_, err := known.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	for name, stranger := range map[string]*kubernetes.Clientset{"without a certificate": client("", ""), "of another authority": client(foreignCert, foreignKey)} {
		if _, err := stranger.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			t.Errorf("a client %s is answered: %v", name, err)
		}
	}
	if response, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
		defer response.Close()
		response.Write([]byte("GET /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\n\r\n"))
		answer := make([]byte, 1024)
		if n, _ := response.Read(answer); bytes.Contains(answer[:n], []byte("NamespaceList")) {
			t.Errorf("served in the clear: %s", answer[:n])
		}
	}
}

func TestCertificatesAreGivenTogether(t *testing.T) {
	authority, cert, key := certificates(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--tls-cert-file", cert, "--tls-private-key-file", key}, "--client-ca-file: expected a file"},
		{[]string{"--client-ca-file", authority}, "--tls-cert-file: expected a file"},
		{[]string{"--tls-cert-file", cert, "--tls-private-key-file", key, "--client-ca-file", key}, "expected certificates in PEM"},
		{[]string{"--tls-cert-file", key, "--tls-private-key-file", key, "--client-ca-file", authority}, "--tls-cert-file " + key},
	} {
		var errs bytes.Buffer
		code := execute(t, &errs, append(c.args, "--data", t.TempDir(), "--listen", "0.0.0.0:0")...)
		if code != cli.ExitBadInput || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%v: exit %d with %q, want %q", c.args, code, errs.String(), c.want)
		}
	}
}
