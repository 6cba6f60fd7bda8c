"""The Faust agents: thin, and never aware of each other."""
