package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Others than the operator choose names that documents repeat. So that a terminal
// acts on none of them, what does not print is an escape in a document that is
// passed on, and stands as one in texts that are made of it.

// printable writes what does not print in a document as JSON's escapes, which
// change nothing of what it says.
func printable(document []byte) []byte {
	safe := make([]byte, 0, len(document))
	for len(document) > 0 {
		r, n := utf8.DecodeRune(document)
		switch {
		case unicode.IsPrint(r) && n > 0 || bytes.ContainsRune([]byte("\n\t\r"), r): // between values
			safe = append(safe, document[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			safe = fmt.Appendf(safe, `\u%04x\u%04x`, high, low)
		default:
			safe = fmt.Appendf(safe, `\u%04x`, r)
		}
		document = document[n:]
	}
	return safe
}

// Encode writes a document as a line of JSON, in which <, > and & are themselves.
func Encode(out io.Writer, document any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(document)
}

// Send answers a request with a document.
func Send(w http.ResponseWriter, document any, log *slog.Logger) {
	w.Header().Set("Content-Type", "application/json")
	if err := Encode(w, document); err != nil {
		log.Debug("a document is not delivered", "error", err)
	}
}

// Decode decodes a document for people: escapes of what does not print stay escapes.
func Decode(document []byte, into any) error {
	document = printable(document)
	literal := make([]byte, 0, len(document))
	for {
		before, rest, found := bytes.Cut(document, []byte(`\`))
		literal = append(literal, before...)
		if !found || len(rest) == 0 {
			break
		}
		if !prints(rest) {
			literal = append(literal, '\\')
		}
		literal = append(literal, '\\', rest[0])
		document = rest[1:]
	}
	return json.Unmarshal(literal, into)
}

// prints says whether an escape, without its backslash, stands for something that
// does.
func prints(escape []byte) bool {
	switch escape[0] {
	case 'u':
		code, err := strconv.ParseUint(string(escape[1:min(5, len(escape))]), 16, 16)
		return err == nil && unicode.IsPrint(rune(code))
	case '"', '\\', '/':
		return true
	}
	return false
}
