"""Live experiments: subjects arrive and are given an option at once, and their rewards come late."""
