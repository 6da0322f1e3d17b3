"""What a run leaves on disk: its directory, its checkpoints."""
