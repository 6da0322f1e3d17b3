"""What a run is made of: its options with their defaults, and how they become a program."""
