"""Agents that are programs: process control, protocols and limits."""
