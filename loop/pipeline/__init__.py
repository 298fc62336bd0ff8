"""Growing a generation: ``generation.py`` is the page to read first."""
