"""Durable deliveries: what is due, attempts, retries."""
