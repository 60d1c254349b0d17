"""The json-file store."""
