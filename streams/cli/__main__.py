"""`python -m streams.cli`: the console script, where it is not on the PATH."""

from streams.cli.main import main

main()
