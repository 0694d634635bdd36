"""`labkit release` and `labkit grade`: a lab handed out to learners, and what they hand in graded."""

import click


@click.command()
@click.argument("lab")
def grade(lab):
    """Grade what learners handed in for LAB."""


COMMANDS = (grade,)
