"""Checks of the environment, and the setup of OpenClaw."""
