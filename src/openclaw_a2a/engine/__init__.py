"""The engine: messages in, runs of agents, a journal of what happened, and its followers."""
