"""The offload role: contexts, tool results and data as files of the workspace."""
