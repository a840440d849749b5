"""What is measured of steps, and what users are told of it."""
