"""Writes settings files."""
