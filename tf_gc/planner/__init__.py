"""A program that predicts where compression pays; nothing else of tf_gc imports it."""
