"""Generated code of the contract, one pair of modules a proto file: ``process_pb2`` and ``process_pb2_grpc``."""
