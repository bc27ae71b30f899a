package openshellb

import "google.golang.org/protobuf/reflect/protoreflect"

// HasUnknown reports whether the message, or one inside it, has fields that these
// definitions do not know: a newer release may mean something by them.
func HasUnknown(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	found := false
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
			if field.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					found = HasUnknown(v.Message())
					return !found
				})
			}
		case field.Message() == nil:
		case field.IsList():
			for i := range v.List().Len() {
				if found = HasUnknown(v.List().Get(i).Message()); found {
					break
				}
			}
		default:
			found = HasUnknown(v.Message())
		}
		return !found
	})
	return found
}
