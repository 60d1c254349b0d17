"""Bytes to model and back: the A2A protocol versions and their bindings, without I/O."""
