"""The guest: the program that runs inside a workspace and owns its processes, journals, files and ports.

Standard library only, CPython 3.9 and later; the WebSocket listener alone uses `websockets`, which the bundle carries.
`docs/guest-protocol.md` specifies what it speaks.
"""
