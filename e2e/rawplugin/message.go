package rawplugin

import (
	"bytes"
	"encoding/binary"
	"math"
	"path"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protowire"
)

// headers as HPACK, each literal: no table that both sides would have to keep.
func headers(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		// Writing to a buffer does not fail.
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true})
	}
	return b.Bytes()
}

// framed is a message as gRPC sends it: not compressed, its length, itself.
func framed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// unframed is the one message of a call, nil where there is none.
func unframed(body []byte) []byte {
	if len(body) < 5 || body[0] != 0 {
		return nil
	}
	return body[5:]
}

// The status codes of gRPC that a plugin answers with.
const (
	OK            = 0
	Unknown       = 2
	Unimplemented = 12
)

// answer to a call: a message, or a status that is not OK.
func (p *Plugin) answer(s *stream) (message []byte, status int) {
	asked := unframed(s.body)
	p.note(s.path, asked)
	if p.Respond != nil {
		return p.Respond(path.Base(s.path), asked)
	}
	switch s.path {
	case "/pluginregistration.Registration/GetInfo":
		b := text(nil, 1, "EvictionPlugin")
		b = text(b, 2, p.Name)
		return text(b, 4, "v1alpha1"), OK
	case "/pluginregistration.Registration/NotifyRegistrationStatus", "/evictionplugin.v1alpha1.EvictionPlugin/GetEvictPods":
		return nil, OK
	case "/evictionplugin.v1alpha1.EvictionPlugin/ThresholdMet":
		return p.threshold(), OK
	case "/evictionplugin.v1alpha1.EvictionPlugin/GetTopEvictionPods":
		return top(asked), OK
	}
	return nil, Unimplemented // GetToken: a plugin need not have it
}

// note a call.
func (p *Plugin) note(path string, asked []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, path)
	if path == "/pluginregistration.Registration/NotifyRegistrationStatus" {
		p.registered = protowire.EncodeBool(true) == Number(asked, 1)
		p.refused = string(bytes.Join(Values(asked, 2), nil))
	}
}

// threshold sends 1 and 1, as some do: met_type alone decides.
func (p *Plugin) threshold() []byte {
	one := protowire.AppendFixed64(nil, math.Float64bits(1))
	b := append(protowire.AppendTag(nil, 1, protowire.Fixed64Type), one...)
	b = append(protowire.AppendTag(b, 2, protowire.Fixed64Type), one...)
	b = varint(b, 3, 1)
	b = varint(b, 4, p.Level)
	b = text(b, 5, "/dev/raw (a scope of any text)")
	condition := text(nil, 2, "NoSchedule")
	condition = text(condition, 3, "RawPressure")
	if p.Level > 0 {
		condition = varint(condition, 4, 1)
	}
	return text(b, 7, string(condition))
}

// top names the first topN pods by their identity alone.
func top(asked []byte) []byte {
	var b []byte
	for i, pod := range Values(asked, 1) {
		if uint64(i) == Number(asked, 2) {
			break
		}
		b = text(b, 1, string(identity(pod)))
	}
	return b
}

// identity is a pod of which there is nothing but the metadata's name (1),
// namespace (3) and uid (5).
func identity(pod []byte) []byte {
	var metadata []byte
	for _, m := range Values(pod, 1) {
		for _, field := range []protowire.Number{1, 3, 5} {
			for _, v := range Values(m, field) {
				metadata = text(metadata, field, string(v))
			}
		}
	}
	return text(nil, 1, string(metadata))
}

func text(b []byte, field protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), value)
}

func varint(b []byte, field protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), value)
}

// Values of a field that is bytes, a string or a message.
func Values(b []byte, of protowire.Number) (list [][]byte) {
	each(b, func(field protowire.Number, kind protowire.Type, value []byte) {
		if field == of && kind == protowire.BytesType {
			if v, n := protowire.ConsumeBytes(value); n > 0 {
				list = append(list, v)
			}
		}
	})
	return list
}

// Number is a field that is a varint; 0 where there is none.
func Number(b []byte, of protowire.Number) (last uint64) {
	each(b, func(field protowire.Number, kind protowire.Type, value []byte) {
		if field == of && kind == protowire.VarintType {
			last, _ = protowire.ConsumeVarint(value)
		}
	})
	return last
}

// each field of a message, as far as it is one.
func each(b []byte, do func(field protowire.Number, kind protowire.Type, value []byte)) {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(field, kind, b[n:])
		if size < 0 {
			return
		}
		do(field, kind, b[n:n+size])
		b = b[n+size:]
	}
}
