"""`python -m labkit`: the command line, if its script is not on PATH."""

from labkit.cli import main

main(prog_name="labkit")
