"""Scenario files: problem, method, options, liars and network in one TOML file."""
