"""The calls of :mod:`workspaced` without ``await``.

::

    with workspaced.sync.connect("127.0.0.1:7420") as client:
        ws = client.initialize(backend="docker", image="python:3.12")
        print(ws.run("python --version", check=True).stdout)
        with ws.exec(["make", "test"]) as process:
            for event in process:
                ...

Results, events and errors are the same classes. Objects may be used from several threads. Callbacks (``on_progress``,
``progress``) run in the library's own thread. Use one face in a program, not both at once.
"""

from .client import Client, connect
from .files import Files
from .lease import LeasedWorkspace
from .mcps import Mcps
from .offload import Offload
from .process import Process
from .skills import Skills
from .stream import Stream
from .tools import Tools
from .tunnel import Forward, Tunnel
from .workspace import Workspace

__all__ = [
    "Client",
    "Files",
    "Forward",
    "LeasedWorkspace",
    "Mcps",
    "Offload",
    "Process",
    "Skills",
    "Stream",
    "Tools",
    "Tunnel",
    "Workspace",
    "connect",
]
