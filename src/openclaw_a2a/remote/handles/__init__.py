"""Continuation handles of remote tasks."""
