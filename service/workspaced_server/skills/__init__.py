"""Skills: directories of a workspace with a `SKILL.md`, in a partition per agent, filled once from the seed."""
