"""The HTTP proxy over people's turns: one file for each family of endpoints."""
