import os as _os

# A child that uvloop forks runs gRPC's fork handlers before it becomes another program, and one in ten dies in them.
# The server never forks to go on as itself; gRPC reads this when it is first imported.
_os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
