"""Pictures of runs. Needs ``bestarm[report]``; nothing else imports this room at start-up."""
