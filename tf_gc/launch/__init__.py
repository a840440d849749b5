"""Starts the processes of a job, and starts them again: `python -m tf_gc.launch`.

It imports no TensorFlow, whose work is done in the processes.
"""
