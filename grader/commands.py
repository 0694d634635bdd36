"""`labkit release` and `labkit grade`: hand out a lab, and grade what learners hand in."""

import shlex
import statistics
import sys
from pathlib import Path

import click

from grader.submissions import shown
from labkit.system import environment, interrupts
from labkit.system.errors import LabkitError

UNPROTECTED = """\
WARNING: without a sandbox, what learners handed in runs as you, with your files, your keys and your network.
         Do this only in a container or virtual machine made for it, where nothing can be lost."""


@click.command()
@click.argument("lab")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--language", help="Language of the text and the self-checks, such as zh_CN. Default: English.")
@click.option("--no-run", is_flag=True, help="Do not train the instructor's own Run.")
@click.option("--no-sandbox", is_flag=True, help="Execute without bubblewrap: it is the instructor's own code.")
def release(lab, folder, language, no_run, no_sandbox):
    """Write the learners' files for LAB into DIR: the notebook, the same as Markdown, and a zip for ModelArts.

    Solutions are replaced by stubs; hidden checks, and files that git does not track, are left out. Nothing is written
    unless the master gets full marks, the unsolved lab gets none, and no line of a solution is revealed. For CIFAR-10
    this takes about 75 seconds on two cores, plus the time to train its Run.

    \b
    Example:  labkit release cifar10 handout
    """
    from grader import release as releasing

    for file in releasing.release(
        _load(lab, "release"), folder, language=language, sandboxed=not no_sandbox, train=not no_run,
        notify=lambda line: click.echo(line, err=True),
    ):  # fmt: skip
        click.echo(file)


@click.command()
@click.argument("lab")
@click.argument("submissions", type=click.Path(path_type=Path))
@click.option("-o", "--out", required=True, metavar="DIR", type=click.Path(path_type=Path),
              help="Folder for all results: a new one, or that of an earlier grading to continue.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), help="Submissions at a time. Default: by cores and memory.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Seed of the probes. Default: the lab's.")
@click.option("--sources", metavar="FOLDER", type=click.Path(path_type=Path, file_okay=False), help="Write each "
              "learner's answers to FOLDER/answers/NAME.py and the stubs to FOLDER/boilerplate, for a plagiarism "
              "detector.")  # fmt: skip
@click.option("--language", metavar="CODE", help="Language of the feedback pages, such as zh_CN. Default: English.")
@click.option("--no-sandbox", is_flag=True, help="Execute the learners' code without bubblewrap: see above.")
def grade(lab, submissions, out, jobs, seed, sources, language, no_sandbox):
    """Grade what learners handed in for LAB, and write grades.csv, grades.json, index.html and feedback pages to DIR.

    LAB is one of this project's labs, or a folder with a lab.md. SUBMISSIONS is a folder or a zip. For each learner it
    has a notebook (ann.ipynb or ann.md), or a folder or a zip (ann/ or ann.zip) with a notebook and perhaps a Run.
    The downloads of Moodle and Canvas have this form, too. What cannot be used, because it is damaged or of another
    type, such as ann.rar, is left out, and the learner's page names it; the others are not affected.

    Answers are executed by bubblewrap, without network, in a read-only system, under the limits in grading.yaml.
    Without bubblewrap nothing is graded, unless --no-sandbox is given: the learners' code can then do all that you can.

    After an interruption, by Ctrl-C or otherwise, the same command resumes. A graded submission is graded again only
    if it, the lab, labkit, the grader, an installed package, the seed or the sandbox has changed. SUBMISSIONS must
    include everybody who was graded into DIR before; use another DIR for another class.

    If you put DIR/roster.csv there, with the learners' student_id and any other columns for grades.csv, such as
    last_name, first_name and email, each of these learners gets a row.
    DIR/overrides.csv contains points and comments that you give by hand: student_id, task, points, comment.
    Exit status: 0; 1 if the grader itself failed at a submission; 130 if interrupted.

    \b
    Example:  labkit grade cifar10 submissions.zip -o graded
              labkit grade labs/thor handed-in/ -o graded --jobs 4 --seed 20261122
    """
    from grader import batch, sandbox

    loaded = _load(lab, "grade")
    if no_sandbox:
        click.secho(UNPROTECTED, fg="red", bold=True, err=True)
    elif missing := sandbox.unavailable():
        raise LabkitError(f"no sandbox: {missing}; install bubblewrap, or see --no-sandbox in --help")
    try:
        with interrupts.stopped_once():
            results, failed = batch.grade_batch(
                loaded, submissions, out, jobs=jobs, seed=seed, sandboxed=not no_sandbox, sources=sources,
                language=language, notify=lambda line: click.echo(shown(line), err=True),
            )  # fmt: skip
    except KeyboardInterrupt:
        command = shlex.join(["labkit", *sys.argv[1:]])
        click.echo(f"\nstopped; what has been graded is kept. Continue with: {command}", err=True)
        sys.exit(130)
    _print_summary(loaded, results, out)
    for student in sorted(failed):
        click.secho(shown(f"NOT GRADED, 0 points until then: {student}: {failed[student]}"), fg="red", err=True)
    if failed:
        click.echo(f"see {out / batch.LOG}; the same command tries again", err=True)
        sys.exit(1)


def _load(lab, command):
    """The lab with this name, or in this folder."""
    environment.require_linux(f"labkit {command}", "its sandbox is bubblewrap")
    from grader import lab as labs

    return labs.load(lab)


def _print_summary(lab, results, out):
    """Print the questions with their mean points, learners with problems, and where the pages are."""
    rows = [(name, most, [result["tasks"][name]["points"] for result in results])
            for name, (_, most) in lab.manifest.questions.items()]  # fmt: skip
    rows.append(("all", lab.manifest.max_score, [result["score"] for result in results]))
    width = max(len(name) for name, _, _ in rows)
    click.echo(f"{len(results)} graded, {lab.manifest.title}: mean points, and how many have all")
    for name, most, points in rows:
        full = sum(number >= most for number in points)
        click.echo(f"  {name:{width}}  {statistics.fmean(points):6.2f} of {most:6g}  {full:5}")
    for result in results:
        if result["problem"]:
            click.echo(shown(f"no points: {result['student']}: {result['problem']}"))
    click.echo(f"points: {out / 'grades.csv'}; the class: {out / 'index.html'}; a page for each: {out / 'feedback'}")
