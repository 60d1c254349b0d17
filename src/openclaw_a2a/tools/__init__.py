"""Tools that agents, programs and people may call, and the ways to call them."""
