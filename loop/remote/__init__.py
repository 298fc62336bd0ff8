"""Models behind somebody else's URL: where they are, and how they are asked."""
