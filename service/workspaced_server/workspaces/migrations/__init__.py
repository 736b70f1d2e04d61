"""Migrations of the registry, run by the server when it starts."""
