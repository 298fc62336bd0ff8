"""Claims about curation."""
