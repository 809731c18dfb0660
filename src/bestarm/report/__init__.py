"""Reports and pictures of runs. Requires ``bestarm[report]``; not imported at start-up."""
