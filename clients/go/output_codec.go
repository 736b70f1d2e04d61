package workspaced

import (
	"sync"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that this one is based on
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// Output that is smaller is not worth a path of its own.
const aliasedBytes = 4 << 10

// outputCodec decodes output of a process without a second copy of its bytes: a third of what receiving it costs. Everything else,
// and output with fields that this version does not know, is decoded as always.
type outputCodec struct{ encoding.CodecV2 }

func newOutputCodec() outputCodec { return outputCodec{encoding.GetCodecV2("proto")} }

// Unmarshal decodes a message.
func (c outputCodec) Unmarshal(data mem.BufferSlice, message any) error {
	if data.Len() < aliasedBytes {
		return c.CodecV2.Unmarshal(data, message)
	}
	encoded := borrow(data.Len()) // belongs to the message from here on
	data.CopyTo(encoded)
	switch message := message.(type) {
	case *pb.ExecResponse:
		if output := outputOf(encoded); output != nil {
			message.Event = &pb.ProcessEvent{Event: &pb.ProcessEvent_Output{Output: output}}
			return nil
		}
	case *pb.AttachProcessResponse:
		if output := outputOf(encoded); output != nil {
			message.Event = &pb.ProcessEvent{Event: &pb.ProcessEvent_Output{Output: output}}
			return nil
		}
	}
	return c.CodecV2.Unmarshal(mem.BufferSlice{mem.SliceBuffer(encoded)}, message)
}

// Memory of output that was copied to where the program wants it, for output that is to come: left to the collector, it costs a
// reader more than all else.
var spent sync.Pool

// Each turn costs some bytes at the front, where the fields before the data were.
const (
	spareBytes    = 4 << 10
	recycledBytes = 64 << 10
)

func borrow(size int) []byte {
	if size >= recycledBytes {
		if found, ok := spent.Get().(*[]byte); ok && cap(*found) >= size {
			return (*found)[:size]
		}
	}
	return make([]byte, size, size+spareBytes)
}

// giveBack takes data of an event that nobody has any more.
func giveBack(data []byte) {
	if cap(data) >= recycledBytes {
		spent.Put(&data)
	}
}

// outputOf is the output that an ExecResponse or AttachProcessResponse consists of; nil for any other. Its data is part of encoded.
func outputOf(encoded []byte) *pb.ProcessOutput {
	event := onlyField(encoded, 1)
	rest := onlyField(event, 2)
	if rest == nil {
		return nil
	}
	output := &pb.ProcessOutput{}
	for len(rest) > 0 {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return nil
		}
		rest = rest[n:]
		var value uint64
		switch {
		case number == 3 && kind == protowire.BytesType:
			output.Data, n = protowire.ConsumeBytes(rest)
		case number <= 2 && kind == protowire.VarintType:
			value, n = protowire.ConsumeVarint(rest)
		default:
			return nil
		}
		if n < 0 {
			return nil
		}
		rest = rest[n:]
		switch number {
		case 1:
			output.Stream = pb.Stream(int32(value))
		case 2:
			output.Offset = value
		}
	}
	return output
}

// onlyField is the content of a message that has this field and nothing else; nil for any other.
func onlyField(message []byte, wanted protowire.Number) []byte {
	number, kind, n := protowire.ConsumeTag(message)
	if n < 0 || number != wanted || kind != protowire.BytesType {
		return nil
	}
	content, m := protowire.ConsumeBytes(message[n:])
	if m < 0 || n+m != len(message) {
		return nil
	}
	return content
}
