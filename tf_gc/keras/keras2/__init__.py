"""The parts that are special to Keras 2, which is the package tf_keras."""
