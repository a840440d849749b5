"""What is special to Keras 2, which is the package tf_keras."""
