"""What recorded data show: every row counts once, and the promise is withdrawn where it cannot hold."""
