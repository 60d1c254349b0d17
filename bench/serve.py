#!/usr/bin/env python3
"""Serve the bench agent with our gateway: durable SQLite, all checks on.

Run: python serve.py --port PORT --data FOLDER
"""
