"""Plugs into other libraries."""
