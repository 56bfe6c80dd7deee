// Package jsonsize says what decoding a JSON text will cost, before it is decoded.
package jsonsize

import "iter"

// Count counts the objects and arrays of a text, and the elements of the outermost one; an empty one counts as one element. Brackets
// in strings do not count.
func Count(text []byte) (objects, elements int) {
	depth := 0
	for c := range outsideStrings(text) {
		switch c {
		case '{', '[':
			objects, depth = objects+1, depth+1
		case '}', ']':
			depth--
		case ',':
			if depth == 1 {
				elements++
			}
		}
	}
	return objects, elements + 1
}

// Values counts the values of a text that are in an object or an array; an empty one counts as one.
func Values(text []byte) (n int) {
	for c := range outsideStrings(text) {
		if c == ',' || c == '{' || c == '[' {
			n++
		}
	}
	return n
}

// outsideStrings has the bytes of a text that are in no string.
func outsideStrings(text []byte) iter.Seq[byte] {
	return func(yield func(byte) bool) {
		for i := 0; i < len(text); i++ {
			if text[i] != '"' {
				if !yield(text[i]) {
					return
				}
				continue
			}
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		}
	}
}
