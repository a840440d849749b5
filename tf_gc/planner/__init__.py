"""The planner: predicts where compression pays, for those without a cluster.

A tool of its own, which nothing else of tf_gc imports: `python -m tf_gc.planner --help`.
"""
