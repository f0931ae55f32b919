"""Other methods behind the same interface, to compare with."""
