"""What exists: messages, tasks, turns and what agents tell; plain frozen data."""
