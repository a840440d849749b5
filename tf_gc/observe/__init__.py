"""Measurements of steps, and what users are told of them."""
