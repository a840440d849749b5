"""The planner: predicts where compression pays, for who has no cluster yet.

A tool of its own, which nothing else of tf_gc imports: `python -m tf_gc.planner --help`.
"""
