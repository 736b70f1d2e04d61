"""MCP servers of workspaces: what is declared, what runs, and the sessions with them.

Nothing here imports the `mcp` SDK before a server is really connected to.
"""
