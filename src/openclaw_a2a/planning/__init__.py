"""Objectives, plans and tasks: what they are, how they may change, and what follows from it."""
