"""`labkit release` and `labkit grade`: a lab handed out to learners, and what they hand in graded."""

import shlex
import statistics
import sys
from pathlib import Path

import click

from labkit.system import environment, interrupts
from labkit.system.errors import LabkitError

UNPROTECTED = """\
WARNING: without a sandbox, what learners handed in runs as you, with your files, your keys and your network.
         Do this only where nothing can be lost: in a container or a virtual machine made for it."""


@click.command()
@click.argument("lab")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--language", help="Of the text and the self-checks: zh_CN; English by default.")
@click.option("--no-run", is_flag=True, help="Leave out the training of the instructor's own Run.")
@click.option("--no-sandbox", is_flag=True, help="Execute without bubblewrap: it is the instructor's own code.")
def release(lab, folder, language, no_run, no_sandbox):
    """Write what learners get of LAB into DIR: its notebook, the same as Markdown, and a zip for ModelArts.

    Solutions are replaced by stubs; hidden checks, and files that git does not track, are left out. Nothing is written
    unless the master gets full marks, the blank none, and no line of a solution is revealed. For CIFAR-10 that takes
    about 75 seconds on two cores, and the time to train its Run.

    \b
    Example:  labkit release cifar10 handout
    """
    from grader import release as releasing

    for file in releasing.release(
        _load(lab, "release"), folder, language=language, sandboxed=not no_sandbox, train=not no_run,
        tell=lambda line: click.echo(line, err=True),
    ):  # fmt: skip
        click.echo(file)


@click.command()
@click.argument("lab")
@click.argument("submissions", type=click.Path(path_type=Path))
@click.option("-o", "--out", required=True, metavar="DIR", type=click.Path(path_type=Path),
              help="Folder for all that comes out: a new one, or an earlier grading's to continue with.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), help="Submissions at a time. Default: by cores and memory.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Of the probes' random numbers. Default: the lab's.")
@click.option("--sources", metavar="FOLDER", type=click.Path(path_type=Path, file_okay=False), help="Write each "
              "learner's answers to FOLDER/answers/NAME.py and the stubs to FOLDER/boilerplate, for a tool that finds "
              "copies.")  # fmt: skip
@click.option("--language", metavar="CODE", help="Of the feedback pages, such as zh_CN. Default: English.")
@click.option("--no-sandbox", is_flag=True, help="Execute what strangers wrote without bubblewrap: see above.")
def grade(lab, submissions, out, jobs, seed, sources, language, no_sandbox):
    """Grade what learners handed in for LAB, and write grades.csv, grades.json, index.html and feedback pages to DIR.

    LAB is one of this project's labs, or a folder with a lab.md. SUBMISSIONS is a folder or a zip with a notebook
    for each learner (ann.ipynb or ann.md), or with a folder or a zip (ann/ or ann.zip) that has a notebook and
    perhaps a Run, or what Moodle downloads of all. Whatever is wrong with one of them costs that learner's row only.
    Another file, such as ann.rar, is a row with 0 points and the reason.

    Answers are executed by bubblewrap, without network, in a read-only system, under the limits of grading.yaml.
    Where it is missing nothing is graded, unless --no-sandbox is given: learners' code then can do all that you can.

    After an interruption, by Ctrl-C or otherwise, the same command resumes. A graded submission is graded again only
    if it, the lab, labkit, the grader, an installed package, the seed or the sandbox has changed. SUBMISSIONS must
    include everybody who was graded into DIR before; use another DIR for another class.

    DIR/roster.csv, if you put it there, has each learner's student_id, and what else grades.csv is to have, such as
    last_name, first_name and email; each of these learners then gets a row.
    DIR/overrides.csv has points and comments by hand: student_id, task, points, comment.
    Exit status: 0; 1 if a submission could not be graded through no fault of its own; 130 if interrupted.

    \b
    Example:  labkit grade cifar10 submissions.zip -o graded
              labkit grade labs/thor handed-in/ -o graded --jobs 4 --seed 20261122
    """
    from grader import sandbox

    loaded = _load(lab, "grade")
    if no_sandbox:
        click.secho(UNPROTECTED, fg="red", bold=True, err=True)
    elif missing := sandbox.unavailable():
        raise LabkitError(f"no sandbox: {missing}; install bubblewrap, or see --no-sandbox in --help")
    from grader import batch

    try:
        with interrupts.stopped_once():
            results, failed = batch.grade_batch(
                loaded, submissions, out, jobs=jobs, seed=seed, sandboxed=not no_sandbox, sources=sources,
                language=language, tell=lambda line: click.echo(line, err=True),
            )  # fmt: skip
    except KeyboardInterrupt:
        again = shlex.join(["labkit", *sys.argv[1:]])
        click.echo(f"\nstopped; what has been graded is kept. Continue with: {again}", err=True)
        sys.exit(130)
    _tell(loaded, results, out)
    for student in sorted(failed):
        click.secho(f"NOT GRADED, 0 points until then: {student}: {failed[student]}", fg="red", err=True)
    if failed:
        click.echo(f"see {out / batch.LOG}; the same command tries again", err=True)
        sys.exit(1)


def _load(lab, command):
    """The lab of this name, or in this folder."""
    environment.require_linux(f"labkit {command}", "its sandbox is bubblewrap")
    from grader import lab as labs

    folder = Path(lab).resolve()
    return labs.load(folder.name, folder) if (folder / "lab.md").is_file() else labs.load(lab)


def _tell(lab, results, out):
    """Questions with their mean points, who had problems, and where the pages are."""
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
            click.echo(f"no points: {result['student']}: {result['problem']}")
    click.echo(f"points: {out / 'grades.csv'}; the class: {out / 'index.html'}; a page for each: {out / 'feedback'}")
