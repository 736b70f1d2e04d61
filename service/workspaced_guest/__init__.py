"""The guest: the program that runs inside a workspace and owns its processes, journals, files and ports.

Standard library only, CPython 3.9 and later. `docs/guest-protocol.md` specifies what it speaks.
"""
