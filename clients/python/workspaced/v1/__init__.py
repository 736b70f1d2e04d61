"""Generated code of the contract, one pair of modules a proto file: ``workspaced.v1.process_pb2``, ``workspaced.v1.execution_pb2_grpc``."""
