"""How far the members of a run are apart, how far they may be, and how old what they hear is."""
