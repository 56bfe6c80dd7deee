package bound

import (
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// The parts of the envelope of an object in Kubernetes' protobuf encoding: four bytes that say what it is, and a message of
// which one field is the object.
const (
	prefix      = 4
	objectField = 2
)

var byNumber = &fieldsOf[protowire.Number]{key: func(field reflect.StructField) (protowire.Number, bool) {
	parts := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return 0, false
	}
	number, err := strconv.Atoi(parts[1])
	return protowire.Number(number), err == nil
}}

// Protobuf returns the error for a body in Kubernetes' protobuf encoding that is too costly to be decoded into a value of a type.
func Protobuf(body []byte, into reflect.Type) error {
	if len(body) < prefix {
		return nil
	}
	w := newWalk(body)
	w.fields(body[prefix:], func(number protowire.Number, object []byte) {
		if number == objectField {
			w.message(object, w.made(into))
		}
	})
	return w.fault
}

// fields calls visit for the fields of a message that have a length.
func (w *walk) fields(message []byte, visit func(protowire.Number, []byte)) {
	for len(message) > 0 && w.fault == nil {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			visit(number, value)
		}
		message = message[n:]
	}
}

// message reads a message of a type, which is counted.
func (w *walk) message(message []byte, t reflect.Type) {
	if t == quantity {
		w.fields(message, func(_ protowire.Number, text []byte) { w.quantity(string(text)) })
		return
	}
	if t.Kind() != reflect.Struct {
		return
	}
	known, elements := byNumber.of(t), map[protowire.Number]int{}
	w.fields(message, func(number protowire.Number, value []byte) {
		of := known[number]
		if of == nil {
			return
		}
		of = w.made(of)
		elements[number]++
		switch of.Kind() {
		case reflect.Slice:
			w.element(of.Elem(), elements[number])
			w.message(value, w.made(of.Elem()))
		case reflect.Map:
			w.take(of.Key())
			w.element(of.Elem(), elements[number])
			w.fields(value, func(part protowire.Number, inner []byte) {
				if part == objectField { // of an entry: its value
					w.message(inner, w.made(of.Elem()))
				}
			})
		default:
			w.message(value, of)
		}
	})
}
