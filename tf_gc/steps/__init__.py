"""How a step sums its gradients: in a warm-up, in a trial or plainly; and what it keeps."""
