"""The hooks into Keras 3 on the TensorFlow backend, and the callbacks."""
