"""The command line: maps each command to its module, which is imported only when the command is used."""

import errno
import importlib.util
import os
import pkgutil
from contextlib import contextmanager

import click

import labkit
from labkit.system import streams
from labkit.system.environment import REPO
from labkit.system.errors import LabkitError, of_file_system

COMMANDS = {
    "train": "labkit.training.commands:train",
    "launch": "labkit.training.commands:launch",
    "eval": "labkit.training.run_commands:evaluate",
    "export": "labkit.training.run_commands:export",
    "plot": "labkit.training.run_commands:plot",
    "compare": "labkit.training.run_commands:compare",
    "doctor": "labkit.doctor:command",
    "parity": "labkit.parity.commands:parity",
    "clinic": "labkit.parity.commands:clinic",
    "convert": "labkit.parity.commands:convert",
    "obs": "labkit.obs.commands:obs",
    "submit": "labkit.modelarts.submit_command:submit",
    "jobs": "labkit.modelarts.jobs_commands:jobs",
    "release": "grader.commands:release",
    "grade": "grader.commands:grade",
}


def is_installed(name: str) -> bool:
    """Whether a command's package is installed: learners and jobs have labkit without grader."""
    return importlib.util.find_spec(COMMANDS[name].partition(".")[0]) is not None


@contextmanager
def _explained():
    """Show labkit's own errors as one line, with their exit status: 1, or that of a failed launch."""
    try:
        yield
    except LabkitError as error:
        one_line = click.ClickException(str(error))
        one_line.exit_code = error.exit_status
        raise one_line from None
    except ModuleNotFoundError as error:
        if (error.name or "labkit").partition(".")[0] == "labkit":
            raise
        remedy = "run `make env`, or `pip install -e '.[cloud,grading]'` in the course's folder"
        raise click.ClickException(f"the module {error.name} is not installed: {remedy}") from None
    except OSError as error:
        if error.errno == errno.EPIPE:  # output piped into `head`; click exits quietly
            raise
        raise click.ClickException(of_file_system(error)) from None


class Commands(click.Group):
    """The commands in COMMANDS, each imported when it is used."""

    def list_commands(self, context):
        return sorted(filter(is_installed, COMMANDS))

    def get_command(self, context, name):
        with _explained():
            if name in COMMANDS and not is_installed(name):
                raise LabkitError(f"labkit {name} is for instructors: use a clone of the course, which has the grader")
            return pkgutil.resolve_name(COMMANDS[name]) if name in COMMANDS else None

    def invoke(self, context):
        self.commands = COMMANDS  # whose names click suggests; only now, as sphinx-click expects no texts in it
        with _explained():
            return super().invoke(context)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(labkit.__version__)
def main():
    """Train, evaluate and compare the networks of the course.

    \b
    Start with:  labkit doctor
                 labkit train cifar10 --profile sample
    """
    streams.prepare()
    if os.environ.get("NO_COLOR"):
        click.get_current_context().color = False
    if not (REPO / "labs").is_dir():
        copy = f"labkit is installed as a copy in {REPO}, without the course's labs and data"
        raise LabkitError(f"{copy}; run `pip install -e .` in the course's folder")
