// Package rpc is gRPC alone: one call with bytes that neither side looks at, over a Unix
// socket. It is what a round of outer plugins costs before anything is said in it.
package rpc

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

// maxBytes is how long a message may be.
const maxBytes = 64 << 20

// method is any: the server has no other.
const method = "/bench.Bytes/Take"

// codec sends a message as it is, and keeps nothing of one that came.
type codec struct{}

func (codec) Name() string                         { return "bytes" }
func (codec) Unmarshal(mem.BufferSlice, any) error { return nil }
func (codec) Marshal(message any) (mem.BufferSlice, error) {
	bytes, _ := message.([]byte)
	return mem.BufferSlice{mem.SliceBuffer(bytes)}, nil
}

// Serve answers each call with nothing, until the process ends.
func Serve(path string) error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", path)
	if err != nil {
		return err
	}
	take := func(_ any, s grpc.ServerStream) error {
		if err := s.RecvMsg(nil); err != nil {
			return err
		}
		return s.SendMsg(nil)
	}
	return grpc.NewServer(grpc.MaxRecvMsgSize(maxBytes), grpc.ForceServerCodecV2(codec{}), grpc.UnknownServiceHandler(take)).Serve(l)
}

// Dial makes a connection to such a server, which is made at the first call.
func Dial(path string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{})))
}

// Call sends the bytes, and waits for the answer.
func Call(ctx context.Context, c *grpc.ClientConn, bytes []byte) error {
	return c.Invoke(ctx, method, bytes, nil, grpc.WaitForReady(true))
}
