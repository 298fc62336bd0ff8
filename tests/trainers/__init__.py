"""Claims about training."""
