// Package jsonsize says what decoding a JSON text will cost, before it is decoded.
package jsonsize

// Count counts the objects and arrays of a text, and the elements of the outermost one; an empty one counts as one element. Brackets
// in strings do not count.
func Count(text []byte) (objects, elements int) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
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
