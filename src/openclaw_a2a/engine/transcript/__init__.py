"""Turns the events of an agent into A2A events."""
