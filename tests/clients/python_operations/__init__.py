"""The operations of the Python driver, one module a subject. Importing this fills the table."""

from . import agent, files, lifecycle, load, offload, ports, processes

__all__ = ["agent", "files", "lifecycle", "load", "offload", "ports", "processes"]
