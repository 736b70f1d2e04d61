"""Imports what the tests use of AgentScope."""

from importlib import import_module

for name in ("agentscope.workspace", "agentscope.mcp", "agentscope.message", "aiodocker"):
    import_module(name)
