"""The command line: one file per command group; typer and rich live only here."""
