"""Clients of remote agents: HTTP in both protocol versions, gRPC on the official SDK."""
