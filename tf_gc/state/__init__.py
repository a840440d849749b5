"""What replicas keep between steps: by stream of gradients, variable and slot."""
