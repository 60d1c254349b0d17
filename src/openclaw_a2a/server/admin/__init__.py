"""Endpoints for the operator: deliveries, approvals, calls and objectives."""
