"""A protoc plugin for Python's gRPC stubs.

The generator is compiled into ``grpc_tools.protoc`` and is no program that buf could start, so this one hands it what
buf sends: a ``CodeGeneratorRequest`` on standard input, a ``CodeGeneratorResponse`` on standard output.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.compiler import plugin_pb2


def generate(request: plugin_pb2.CodeGeneratorRequest) -> plugin_pb2.CodeGeneratorResponse:
    """The stubs of every file of the request that has services."""
    response = plugin_pb2.CodeGeneratorResponse(
        supported_features=plugin_pb2.CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL
    )
    with_services = {file.name for file in request.proto_file if file.service}
    names = [name for name in request.file_to_generate if name in with_services]
    if not names:
        return response
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary, "out")
        out.mkdir()
        descriptors = Path(temporary, "descriptors.binpb")
        descriptors.write_bytes(descriptor_pb2.FileDescriptorSet(file=request.proto_file).SerializeToString())
        protoc = [sys.executable, "-m", "grpc_tools.protoc", f"--descriptor_set_in={descriptors}"]
        ended = subprocess.run([*protoc, f"--grpc_python_out={out}", *names], stdout=sys.stderr, check=False)
        if ended.returncode:
            response.error = f"grpc_tools.protoc ended with status {ended.returncode}"
            return response
        for path in sorted(out.rglob("*.py")):
            response.file.add(name=path.relative_to(out).as_posix(), content=path.read_text(encoding="utf-8"))
    return response


def main() -> None:
    request = plugin_pb2.CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
    sys.stdout.buffer.write(generate(request).SerializeToString())


if __name__ == "__main__":
    main()
