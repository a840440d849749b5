"""What repairs Keras where several workers train: one of them writes, all of them stop together."""
