"""Where jobs run: in this process, or on Ray."""
