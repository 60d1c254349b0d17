"""The settings as types."""
