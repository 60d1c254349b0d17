"""The dashboard: pages for browsers, each with a JSON twin at its address, and live updates."""
