package outer

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll/katalyst"
)

// withPods sends pods with a request that has none. They are encoded once for all plugins
// and calls of a round, and not copied before they are written.
func withPods(shown katalyst.VisiblePods) callOption {
	return grpc.ForceCodecV2(podsCodec{newAnswerCodec(), shown.Field})
}

// podsCodec appends an encoded field to each message that it encodes.
type podsCodec struct {
	answerCodec
	field []byte
}

// Marshal encodes a message, with the field.
func (c podsCodec) Marshal(message any) (mem.BufferSlice, error) {
	data, err := c.answerCodec.Marshal(message)
	if err != nil {
		return nil, err
	}
	return append(data, mem.SliceBuffer(c.field)), nil
}

// maxFields bounds the fields of an answer, those of the messages in it included: ten times
// what it takes to name every pod of a dense node. An empty message of two bytes takes more
// than a hundred in memory, so that maxAnswer alone does not bound that.
const maxFields = 1 << 16

var errManyFields = fmt.Errorf("the answer has more than %d fields", maxFields)

// answerCodec decodes no answer that has more than maxFields fields.
type answerCodec struct{ encoding.CodecV2 }

func newAnswerCodec() answerCodec { return answerCodec{encoding.GetCodecV2(protocodec.Name)} }

// Unmarshal decodes a message.
func (c answerCodec) Unmarshal(data mem.BufferSlice, message any) error {
	text := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer text.Free()
	if m, is := message.(proto.Message); is && !fieldsWithin(text.ReadOnlyData(), m.ProtoReflect().Descriptor(), new(maxFields)) {
		return errManyFields
	}
	return c.CodecV2.Unmarshal(mem.BufferSlice{text}, message)
}

// Name leaves the content type application/grpc, as without it.
func (answerCodec) Name() string { return "" }

// fieldsWithin reports whether an encoded message has at most so many fields, and takes them
// off. Of what is no message it reports nothing: the decoder tells.
func fieldsWithin(b []byte, of protoreflect.MessageDescriptor, left *int) bool {
	for len(b) > 0 {
		number, kind, tag := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(number, kind, b[max(0, tag):])
		if tag < 0 || size < 0 {
			return true
		}
		if *left--; *left < 0 {
			return false
		}
		if field := of.Fields().ByNumber(number); kind == protowire.BytesType && field != nil && field.Message() != nil {
			inner, _ := protowire.ConsumeBytes(b[tag:])
			if !fieldsWithin(inner, field.Message(), left) {
				return false
			}
		}
		b = b[tag+size:]
	}
	return true
}
