"""The state that replicas keep between steps: by stream of gradients, variable and slot."""
