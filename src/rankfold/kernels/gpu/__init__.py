"""Launcher and helpers that device bodies of all families share."""
