"""openclaw-a2a."""
