"""Tables larger than memory into a packed panel."""
