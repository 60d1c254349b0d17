"""Builds the parts of a gateway and connects them."""
