"""`python -m labkit`: the command line, for when its script is not on PATH."""

from labkit.cli import main

main(prog_name="labkit")
