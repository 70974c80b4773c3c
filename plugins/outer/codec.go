package outer

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/plimsoll-dev/plimsoll/katalyst"
)

// withPods sends pods with a request that has none. They are encoded once for all plugins
// and calls of a round, and not copied before they are written.
func withPods(shown katalyst.VisiblePods) callOption {
	return grpc.ForceCodecV2(podsCodec{encoding.GetCodecV2(proto.Name), shown.Field})
}

// podsCodec appends an encoded field to each message that it encodes.
type podsCodec struct {
	encoding.CodecV2
	field []byte
}

// Marshal encodes a message, with the field.
func (c podsCodec) Marshal(message any) (mem.BufferSlice, error) {
	data, err := c.CodecV2.Marshal(message)
	if err != nil {
		return nil, err
	}
	return append(data, mem.SliceBuffer(c.field)), nil
}

// Name leaves the content type application/grpc, as without it.
func (podsCodec) Name() string { return "" }
