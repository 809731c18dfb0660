"""Studies of many runs, plans, schedules and limits."""
