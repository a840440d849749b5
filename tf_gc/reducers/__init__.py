"""Reducers: how what each replica has of a bucket gets to the others and becomes a sum there."""
