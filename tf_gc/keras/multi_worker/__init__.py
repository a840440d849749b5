"""What repairs Keras where several workers train: one of them writes, all do the same."""
