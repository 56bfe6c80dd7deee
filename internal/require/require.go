// Package require ends a test where a step that it needs has failed.
package require

import "testing"

// NoError ends the test with an error, unless that is nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
