package openapi

import (
	"maps"
	"reflect"
	"strings"
)

func (s schemas) schema(t reflect.Type) object {
	if t.Kind() == reflect.Pointer {
		return s.schema(t.Elem())
	}
	if special, ok := reflect.Zero(t).Interface().(interface {
		OpenAPISchemaType() []string
		OpenAPISchemaFormat() string
	}); ok {
		described := object{"type": special.OpenAPISchemaType()[0]}
		if format := special.OpenAPISchemaFormat(); format != "" {
			described["format"] = format
		}
		return described
	}
	switch t.Kind() {
	case reflect.Struct:
		return s.reference(t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "format": "byte"}
		}
		return object{"type": "array", "items": s.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.schema(t.Elem())}
	}
	if described, ok := scalars[t.Kind()]; ok {
		return maps.Clone(described)
	}
	return object{"type": "object"}
}

var scalars = map[reflect.Kind]object{
	reflect.String: {"type": "string"}, reflect.Bool: {"type": "boolean"},
	reflect.Int: {"type": "integer", "format": "int32"}, reflect.Int32: {"type": "integer", "format": "int32"},
	reflect.Int64: {"type": "integer", "format": "int64"}, reflect.Uint32: {"type": "integer", "format": "int64"},
	reflect.Float64: {"type": "number", "format": "double"},
}

// reference describes a struct once and points there.
func (s schemas) reference(t reflect.Type) object {
	name := modelName(t)
	if name == "" {
		return object{"type": "object"}
	}
	if _, described := s.all[name]; !described {
		model := object{"type": "object"}
		s.all[name] = model // before its fields, which may lead back here
		properties, required := object{}, []string{}
		s.addFields(t, properties, &required)
		if len(properties) > 0 {
			model["properties"] = properties
		}
		if len(required) > 0 {
			model["required"] = required
		}
		if text := documentation(t)[""]; text != "" {
			model["description"] = text
		}
	}
	return object{"$ref": s.prefix + name}
}

// documentation is by JSON field; the type's own has no field.
func documentation(t reflect.Type) map[string]string {
	if documented, ok := reflect.Zero(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		return documented.SwaggerDoc()
	}
	return nil
}

func (s schemas) addFields(t reflect.Type, properties object, required *[]string) {
	texts := documentation(t)
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
			continue
		case field.Anonymous && name == "":
			s.addFields(field.Type, properties, required)
			continue
		}
		property := s.schema(field.Type)
		if s.wrap && property["$ref"] != nil {
			property = object{"allOf": []object{property}}
		}
		if text := texts[name]; text != "" {
			property["description"] = text
		}
		if key := field.Tag.Get("patchMergeKey"); key != "" {
			property["x-kubernetes-patch-merge-key"] = key
		}
		if strategy := field.Tag.Get("patchStrategy"); strategy != "" {
			property["x-kubernetes-patch-strategy"] = strategy
		}
		properties[name] = property
		if !strings.Contains(options, "omit") && field.Type.Kind() != reflect.Pointer {
			*required = append(*required, name)
		}
	}
}
