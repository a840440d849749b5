"""Reduction: how the messages of a bucket get to the other replicas, and become a sum there."""
