"""Reducers: how the replicas' parts of a bucket get to all replicas and are summed there."""
