"""Policies: conversations in, completions out. One module per backend, each with its heavy import inside."""
