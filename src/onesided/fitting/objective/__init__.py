"""What is minimised: value and gradient, no loops over iterations."""
