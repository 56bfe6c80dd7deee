package embeddedapi

import (
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Tokens are the users that tokens stand for. The tokens are kept as hashes.
type Tokens map[[sha256.Size]byte]authenticationv1.UserInfo

// ReadTokens reads a file of tokens as kube-apiserver does: a token, a user name, a uid and, in
// quotes, the user's groups in each line. All faults are reported, with the name of the file.
func ReadTokens(file io.Reader, name string) (Tokens, error) {
	records := csv.NewReader(file)
	records.FieldsPerRecord = -1
	tokens, faults := Tokens{}, []error(nil)
	for {
		record, err := records.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errors.Join(append(faults, fmt.Errorf("%s: %w", name, err))...)
		}
		line, _ := records.FieldPos(0)
		if len(record) < 3 || record[0] == "" || record[1] == "" {
			faults = append(faults, fmt.Errorf("%s: line %d: expected a token, a user name and a uid, found %d values", name, line, len(record)))
			continue
		}
		hash := sha256.Sum256([]byte(record[0]))
		if _, known := tokens[hash]; known {
			faults = append(faults, fmt.Errorf("%s: line %d: the token is in an earlier line, too", name, line))
			continue
		}
		user := authenticationv1.UserInfo{Username: record[1], UID: record[2]}
		if len(record) > 3 {
			user.Groups = strings.Split(record[3], ",")
		}
		tokens[hash] = user
	}
	if len(tokens) == 0 && len(faults) == 0 {
		faults = append(faults, fmt.Errorf("%s: expected at least one token", name))
	}
	return tokens, errors.Join(faults...)
}

func (t Tokens) user(token string) (authenticationv1.UserInfo, bool) {
	user, known := t[sha256.Sum256([]byte(token))]
	if known && !slices.Contains(user.Groups, authenticated) {
		user.Groups = append(slices.Clone(user.Groups), authenticated)
	}
	return user, known
}

// authenticated is the group of every known user.
const authenticated = "system:authenticated"

// user is the sender of a request: behind TLS the user of the certificate, else that of the token. A
// program on this host, which is not asked, is an administrator.
func (r *request) user() (authenticationv1.UserInfo, error) {
	if r.TLS == nil {
		return authenticationv1.UserInfo{Username: "system:admin", Groups: []string{"system:masters", authenticated}}, nil
	}
	if len(r.TLS.VerifiedChains) > 0 {
		subject := r.TLS.VerifiedChains[0][0].Subject
		return authenticationv1.UserInfo{Username: subject.CommonName, Groups: append(slices.Clone(subject.Organization), authenticated)}, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if user, known := r.api.tokens.user(strings.TrimSpace(token)); known && strings.EqualFold(scheme, "bearer") {
		return user, nil
	}
	return authenticationv1.UserInfo{}, apierrors.NewUnauthorized("Unauthorized")
}

// allow refuses a request behind TLS without a known user, and a request in the clear that a web
// page could send.
func (r *request) allow() error {
	if r.TLS == nil {
		return local(r.Request)
	}
	_, err := r.user()
	if err != nil {
		r.w.Header().Set("WWW-Authenticate", "Bearer")
	}
	return err
}
