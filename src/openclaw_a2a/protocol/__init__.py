"""Bytes to model and back, for both protocol generations. No input, no output, no clock."""
