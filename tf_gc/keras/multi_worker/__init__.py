"""Keras where several workers train: one of them writes, and all do the same."""
