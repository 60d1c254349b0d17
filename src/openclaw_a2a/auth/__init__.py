"""Authentication: decides who a caller is."""
