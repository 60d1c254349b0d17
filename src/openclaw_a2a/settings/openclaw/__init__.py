"""Finds and reads the configuration of OpenClaw."""
