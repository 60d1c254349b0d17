"""Clients of remote agents on the official SDK."""
