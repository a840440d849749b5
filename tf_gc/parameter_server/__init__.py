"""Compression under parameter servers: workers push gradients and pull variables."""
