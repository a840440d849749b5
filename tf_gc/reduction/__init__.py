"""Reduction: which gradients travel in one message, and who sends messages to whom."""
