"""The problem: layout, reward models, scale, and data from CSV files."""
