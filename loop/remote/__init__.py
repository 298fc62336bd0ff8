"""Models behind a URL: where they are, how they are asked, and how a server of one's own is kept up."""
