"""Remote targets served as agents."""
