// Package rawplugin is an outer plugin written from the table of the wire alone:
// HTTP/2 frames and protobuf fields by hand, without gRPC, without generated code
// and without the kit. What hosts say to it and take from it is therefore what
// a plugin in any language can rely on.
//
// # Usage
//
//	p := &rawplugin.Plugin{Name: "raw", Level: 2}
//	go p.Serve(listener)
//
// # Concurrency
//
// Each connection has a goroutine; Serve waits for them.
package rawplugin

import (
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Plugin names the first Top pods that it is shown.
type Plugin struct {
	Name string
	// Level is ThresholdMet's met_type.
	Level uint64
	// Respond answers instead of the plugin's own answers, if it is set: to a method by
	// a message, or by a status that is not OK. Its connection waits for it.
	Respond func(method string, request []byte) (message []byte, status int)

	mu         sync.Mutex // of those below
	calls      []string
	registered bool
	refused    string
	conns      []net.Conn
}

// Calls are the methods that were called so far, in order.
func (p *Plugin) Calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// Registered is what the host said last, and why not.
func (p *Plugin) Registered() (bool, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.registered, p.refused
}

// Serve until the listener is closed; then all connections are.
func (p *Plugin) Serve(l net.Listener) error {
	var all sync.WaitGroup
	defer all.Wait()
	defer p.hangUp()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.conns = append(p.conns, c)
		p.mu.Unlock()
		all.Go(func() {
			defer c.Close()
			_ = p.speak(c) // its end, however it ends
		})
	}
}

func (p *Plugin) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close() // it may have ended before
	}
}

// stream is one call.
type stream struct {
	path string
	body []byte
}

// speak is one connection: RFC 9113, as little of it as gRPC needs.
func (p *Plugin) speak(c net.Conn) error {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil {
		return err
	}
	if string(preface) != http2.ClientPreface {
		return errors.New("that is not HTTP/2")
	}
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := f.WriteSettings(); err != nil {
		return err
	}
	for streams := map[uint32]*stream{}; ; {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		if err := p.hear(f, streams, frame); err != nil {
			return err
		}
	}
}

func (p *Plugin) hear(f *http2.Framer, streams map[uint32]*stream, frame http2.Frame) error {
	id := frame.Header().StreamID
	switch frame := frame.(type) {
	case *http2.SettingsFrame:
		if frame.IsAck() {
			return nil
		}
		return f.WriteSettingsAck()
	case *http2.PingFrame:
		if frame.IsAck() {
			return nil
		}
		return f.WritePing(true, frame.Data)
	case *http2.MetaHeadersFrame:
		streams[id] = &stream{path: frame.PseudoValue("path")}
	case *http2.DataFrame:
		s := streams[id]
		if s == nil {
			return nil // it was reset
		}
		s.body = append(s.body, frame.Data()...)
		if err := room(f, id, frame); err != nil {
			return err
		}
		if frame.StreamEnded() {
			delete(streams, id)
			answer, status := p.answer(s)
			return reply(f, id, answer, status)
		}
	case *http2.RSTStreamFrame:
		delete(streams, id)
	}
	return nil
}

// room gives back to the sender what was read.
func room(f *http2.Framer, id uint32, frame *http2.DataFrame) error {
	n := frame.Header().Length
	if n == 0 {
		return nil
	}
	if err := f.WriteWindowUpdate(0, n); err != nil || frame.StreamEnded() {
		return err
	}
	return f.WriteWindowUpdate(id, n)
}

// reply with a message, or with a status that is not OK.
func reply(f *http2.Framer, id uint32, message []byte, status int) error {
	head, trailer := headers(":status", "200", "content-type", "application/grpc"), headers("grpc-status", strconv.Itoa(status))
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head, EndHeaders: true}); err != nil {
		return err
	}
	if status == OK {
		if err := f.WriteData(id, false, framed(message)); err != nil {
			return err
		}
	}
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: trailer, EndHeaders: true, EndStream: true})
}
