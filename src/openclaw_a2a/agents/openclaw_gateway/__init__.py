"""A running OpenClaw gateway as an agent: the main road to OpenClaw."""
