"""The engine: accepts messages, runs agents, and journals their events for subscribers."""
