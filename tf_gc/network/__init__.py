"""Groups of replicas, the collectives between them, and what they cost."""
