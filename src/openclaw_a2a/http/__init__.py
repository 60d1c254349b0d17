"""Request plumbing shared by every HTTP endpoint."""
