"""Commands that change objectives, plans and their execution."""
