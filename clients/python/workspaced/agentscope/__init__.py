"""Workspaces of AgentScope that are workspaces here: ``pip install workspaced[agentscope]``.

::

    async with workspaced.connect() as client, AgentScopeWorkspace(client, backend="docker") as workspace:
        toolkit = Toolkit(
            tools=await workspace.list_tools(),
            mcps=await workspace.list_mcps(),
            skills_or_loaders=await workspace.list_skills(),
        )
        agent = Agent(name="Ada", toolkit=toolkit, offloader=workspace, ...)
"""

from .backend import AgentScopeBackend
from .workspace import AgentScopeWorkspace

__all__ = ["AgentScopeBackend", "AgentScopeWorkspace"]
