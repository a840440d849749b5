"""Distribution strategies that compress gradients."""
