package workspaced

import (
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

func TestOutputCodecDecodesWhatProtobufDoes(t *testing.T) {
	output := func(stream pb.Stream, offset uint64, size int) *pb.ProcessEvent {
		return &pb.ProcessEvent{Event: &pb.ProcessEvent_Output{Output: &pb.ProcessOutput{
			Stream: stream, Offset: offset, Data: pattern(size),
		}}}
	}
	unknown := output(pb.Stream_STREAM_PTY, 7, 9000)
	unknown.GetOutput().ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 5))
	events := map[string]*pb.ProcessEvent{
		"small":            output(pb.Stream_STREAM_STDOUT, 1, 10),
		"large":            output(pb.Stream_STREAM_STDERR, 1<<40, 256<<10),
		"at the beginning": output(pb.Stream_STREAM_STDOUT, 0, 8000),
		"a newer stream":   output(pb.Stream(77), 5, 8000),
		"a newer field":    unknown,
		"another event": {Event: &pb.ProcessEvent_Started{Started: &pb.ProcessStarted{
			Process: &pb.Process{ProcessId: string(make([]byte, 6000)), StartTime: timestamppb.Now()},
		}}},
	}
	for name, event := range events {
		t.Run(name, func(t *testing.T) {
			encoded, err := proto.Marshal(&pb.ExecResponse{Event: event})
			if err != nil {
				t.Fatal(err)
			}
			// In pieces, as it comes from the transport.
			pieces := mem.BufferSlice{mem.SliceBuffer(encoded[:len(encoded)/2]), mem.SliceBuffer(encoded[len(encoded)/2:])}
			var exec pb.ExecResponse
			if err := newOutputCodec().Unmarshal(pieces, &exec); err != nil {
				t.Fatal(err)
			}
			var attach pb.AttachProcessResponse
			if err := newOutputCodec().Unmarshal(pieces, &attach); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(exec.GetEvent(), event) || !proto.Equal(attach.GetEvent(), event) {
				t.Error("differs")
			}
		})
	}
	for cut := range 40 {
		encoded, err := proto.Marshal(&pb.ExecResponse{Event: output(pb.Stream_STREAM_STDOUT, 3, 8000)})
		if err != nil {
			t.Fatal(err)
		}
		damaged := append([]byte(nil), encoded[:len(encoded)-1-cut]...)
		var response pb.ExecResponse
		if newOutputCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(damaged)}, &response) == nil {
			t.Errorf("a message without its last %d bytes is accepted", cut+1)
		}
	}
}
