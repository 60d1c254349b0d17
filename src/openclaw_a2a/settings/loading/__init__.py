"""Reads settings from file, environment and flags."""
