"""What presets consist of: layers of options, and rules that derive options from others."""
