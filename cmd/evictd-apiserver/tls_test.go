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

	authenticationv1 "k8s.io/api/authentication/v1"
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

// begin runs the program until the test ends.
func begin(t *testing.T, args ...string) {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), runAsProgram+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
}

// TestOtherHostsAreServedByToken serves clients with a token, and those with a certificate, too, where an authority is given.
func TestOtherHostsAreServedByToken(t *testing.T) {
	authority, cert, key := certificates(t)
	file := filepath.Join(t.TempDir(), "tokens.csv")
	require.NoError(t, os.WriteFile(file, []byte("secret,jane,1,\"ops,dev\"\nother,joe,2\n"), 0o600))
	for name, extra := range map[string][]string{"tokens": nil, "tokens and certificates": {"--client-ca-file", authority}} {
		t.Run(name, func(t *testing.T) {
			port := freePort(t)
			begin(t, append(extra, "--data", filepath.Join(shortDir(t), "data"), "--listen", "0.0.0.0:"+port,
				"--tls-cert-file", cert, "--tls-private-key-file", key, "--token-auth-file", file)...)
			client := func(token string, with ...string) *kubernetes.Clientset {
				config := &rest.Config{Host: "https://127.0.0.1:" + port, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: authority}}
				if len(with) > 0 {
					config.CertFile, config.KeyFile = with[0], with[1]
				}
				client, err := kubernetes.NewForConfig(config)
				require.NoError(t, err)
				return client
			}
			jane := client("secret")
			wait.Until(t, "the API to be served", func() bool {
				_, err := jane.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
				return err == nil
			})
			self, err := jane.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if err != nil || self.Status.UserInfo.Username != "jane" || strings.Join(self.Status.UserInfo.Groups, " ") != "ops dev system:authenticated" {
				t.Errorf("jane is %+v, %v", self.Status, err)
			}
			for token, known := range map[string]bool{"other": true, "wrong": false} {
				review, err := jane.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
				if err != nil || review.Status.Authenticated != known {
					t.Errorf("the token %s: %+v, %v", token, review, err)
				}
			}
			for _, stranger := range []*kubernetes.Clientset{client("wrong"), client("")} {
				if _, err := stranger.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
					t.Errorf("a client without a known token: %v", err)
				}
			}
			_, err = client("", cert, key).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			if (err == nil) != (len(extra) > 0) {
				t.Errorf("a client with a certificate: %v", err)
			}
		})
	}
}

// TestOtherHostsAreServedByCertificate serves all addresses and connects to loopback: the
// address that is listened on decides.
func TestOtherHostsAreServedByCertificate(t *testing.T) {
	authority, cert, key := certificates(t)
	_, foreignCert, foreignKey := certificates(t)
	port := freePort(t)
	begin(t, "--data", filepath.Join(shortDir(t), "data"), "--listen", "0.0.0.0:"+port,
		"--tls-cert-file", cert, "--tls-private-key-file", key, "--client-ca-file", authority)
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
		{[]string{"--tls-cert-file", cert, "--tls-private-key-file", key}, "--client-ca-file or --token-auth-file: expected a file"},
		{[]string{"--client-ca-file", authority}, "--tls-cert-file: expected a file"},
		{[]string{"--tls-cert-file", cert, "--tls-private-key-file", key, "--token-auth-file", key}, "--token-auth-file " + key + ": line 1: expected a token, a user name and a uid"},
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
