"""Helpers that know nothing about bandits: files, seeds, text, and an append-only journal."""
