"""labkit obs, and its commands that copy and compare. The SDK is imported once a server is asked."""

import os
import signal
import sys
from contextlib import contextmanager

import click

from labkit.obs import access, bucket_commands
from labkit.obs.console import (
    AS_JSON,
    DRY_RUN,
    QUIET,
    Bandwidth,
    Place,
    bar,
    connected,
    count,
    deadline,
    failure_as_json,
    fields,
    print_json,
    shown,
    warn,
    with_options,
)
from labkit.obs.place import CloudError, Local, parse

DEADLINE = deadline()
SOURCE_AND_TARGET = (
    click.argument("source", metavar="SRC", type=Place()),
    click.argument("target", metavar="DST", type=Place()),
)
SHOWN = 20  # files that failed, by name


COPYING = (
    *SOURCE_AND_TARGET,
    click.option("--include", multiple=True, metavar="PATTERN", help="In a folder, only matching files; repeatable."),
    click.option("--exclude", multiple=True, metavar="PATTERN", help="In a folder, no matching files; repeatable."),
    click.option("--jobs", type=click.IntRange(min=1), default=8, show_default=True, help="Requests at a time."),
    click.option("--bandwidth", type=Bandwidth(), metavar="RATE", help="Most bytes a second, for example 5MiB."),
    click.option("--force", is_flag=True, help="Copy what is there already as well."),
    DEADLINE,
    DRY_RUN,
    QUIET,
    AS_JSON,
)


@click.group(epilog=access.HELP)
def obs():
    """Copy between this machine and a bucket of OBS or S3, and look at what is there.

    A place is obs://BUCKET/KEY, s3://BUCKET/KEY, or a path.

    Exit status: 0; 1 if something or all of it failed; 2 if the command makes no sense; 130 after Ctrl-C, 143 after
    SIGTERM.

    \b
    Example:  labkit obs ls obs://my-bucket
              labkit obs cp data/sample obs://my-bucket/sample
    """
    context = click.get_current_context()
    resumes = context.invoked_subcommand in ("cp", "sync", "rm")
    context.with_resource(_ending_at_once("; the same command resumes it" if resumes else ""))


@obs.command()
@with_options(*COPYING)
def cp(source, target, **options):
    """Copy SRC to DST: a file, or what is in a folder. From bucket to bucket, the server copies by itself.

    The files in a folder go into DST, with or without a "/" at its end. A single file goes into DST if that is a folder
    of this machine or ends with "/"; otherwise DST is its new name. If a key is both an object and a folder, obs://b/k
    is the object, obs://b/k/ the folder. Nothing in DST is ever deleted.

    A file that is there already, by size and checksum, is not copied again. If a copy was cut off, the same command
    resumes it. Everything is compared by checksum afterwards. In a pattern, * stands for anything, also for "/".

    SRC or DST may be -, standard input or output, if the other one is an object. Such a copy is not resumed.

    \b
    Example:  labkit obs cp model.ckpt obs://my-bucket/models/           as models/model.ckpt
              labkit obs cp model.ckpt obs://my-bucket/models/best.ckpt  under a new name
              labkit obs cp obs://my-bucket/runs/mine runs/mine --exclude '*.ckpt'
              labkit obs cp data/sample obs://my-bucket/sample --dry-run
              tar cz runs | labkit obs cp - obs://my-bucket/runs.tar.gz
    """
    if "-" in (source, target):
        _stream(source, target, **options)
        return
    _copy(source, target, **options)


@obs.command()
@with_options(*COPYING)
@click.option("--delete", is_flag=True, help="Also remove what only DST has: lists it, then asks.")
@click.option("--yes", is_flag=True, help="With --delete: do not ask.")
def sync(source, target, delete, yes, **options):
    """Copy to the folder DST what the folder SRC has and DST lacks.

    A file that is there already, by size and checksum, is not copied again; what only DST has stays. Like `labkit obs
    cp`, but for folders only: a SRC that is a file is refused, and obs://b/k is never the object k.

    With --delete, what only DST has is removed once everything is copied. Look first with --dry-run. Files that
    --include and --exclude leave out stay, and if a file cannot be copied or SRC is empty, nothing is removed.

    \b
    Example:  labkit obs sync runs/mine obs://my-bucket/runs/mine
              labkit obs sync obs://my-bucket/runs/mine runs/mine --include '*.json*'
              labkit obs sync data obs://my-bucket/data --delete --dry-run
    """
    place = parse(source)
    if "-" in (source, target):
        raise click.UsageError("-: only `labkit obs cp` copies standard input and output; a folder of this name is ./-")
    if isinstance(place, Local) and place.path.is_file():
        raise click.UsageError(f"{source}: a file, not a folder; copy it with `labkit obs cp`")
    if yes and not delete:
        raise click.UsageError("--yes: only --delete asks")
    if delete and options["as_json"] and not (yes or options["dry_run"]):
        raise click.UsageError("--json asks no question: add --yes, or look first with --dry-run")
    _copy(source if source.endswith("/") else f"{source}/", target, delete=delete, yes=yes, **options)


@obs.command()
@with_options(*SOURCE_AND_TARGET, DEADLINE, AS_JSON)
def verify(source, target, deadline, as_json):
    """Compare by checksum: is all of SRC in DST? Exit status 1 if something is missing or differs.

    SRC and DST as in `labkit obs cp`. An object that another tool has uploaded in parts, or that the server encrypts,
    may have no checksum to compare. It is listed as such, and the exit status is 1.

    \b
    Example:  labkit obs verify runs/mine obs://my-bucket/runs/mine
    """
    from labkit.obs import copying

    unknown = []
    with failure_as_json(as_json):
        store = connected(source, target, deadline=deadline)
        differences = copying.verify(source, target, unknown=unknown, store=store)
    ok = not (differences or unknown)
    if as_json:
        print_json({"source": source, "target": target, "ok": ok, "differences": differences, "unknown": unknown})
        sys.exit(0 if ok else 1)
    for line in differences + unknown:
        click.echo(shown(line))
    if differences:
        click.echo(f"{count(len(differences))} of {source} missing in {target}, or different there")
    if unknown:
        click.echo(f"{count(len(unknown))} of {source} the same size in {target}, but without a checksum to compare")
    if ok:
        click.echo("all is there")
    sys.exit(0 if ok else 1)


# -- What they share -------------------------------------------------------------------------------


def _copy(source, target, include, exclude, jobs, bandwidth, force, deadline, dry_run, quiet, as_json, delete=False,
          yes=False):  # fmt: skip
    from labkit.obs import copying, mirroring, plan

    try:
        plan.require_possible(parse(source), parse(target))
    except CloudError as error:
        raise click.UsageError(str(error)) from None
    if bandwidth and len({type(parse(place)) for place in (source, target)}) == 1:
        raise click.UsageError("--bandwidth: nothing goes over the network between two folders, or two buckets")
    found, extra, chosen = {"copied": [], "skipped": []}, [], {"include": include, "exclude": exclude}
    with failure_as_json(as_json):
        store = connected(source, target, deadline=deadline, rate=bandwidth)
        if delete:
            extra = mirroring.surplus(source, target, **chosen, store=store)
            if extra and not (yes or dry_run):
                _ask_to_remove(extra, target)
        with bar(quiet) as progress:
            try:
                report, failure = copying.copy(
                    source, target, jobs=jobs, incremental=not force, dry_run=dry_run, **chosen, progress=progress,
                    each=lambda item, outcome: found[outcome].append(item), store=store,
                ), None  # fmt: skip
            except copying.CopyError as error:
                report, failure, extra = error.report, error, []
        came = {item.name for item in found["copied"] + found["skipped"]}  # some perhaps since the preview
        extra = [item for item in extra if item.name not in came]
        if extra and not dry_run:
            mirroring.remove(extra, target, jobs=jobs, store=store)
    copied = sorted(found["copied"], key=lambda item: item.name)
    if as_json:
        failed = [{"name": name, **fields(error)} for name, error in report.failed]
        counts = {"copied": report.copied, "skipped": report.skipped, "bytes": report.bytes, "failed": failed}
        names = {"files": [item.name for item in copied]}
        names |= {"removed": [item.name for item in extra]} if delete else {}
        print_json({"source": source, "target": target, "dry_run": dry_run, **counts, **names})
    elif dry_run:
        for item in copied:
            click.echo(f"would copy {item.size:15,}  {shown(item.name)}")
        _list_removals(extra)
    if failure:
        _raise(failure, delete)
    if not as_json and (dry_run or not quiet):
        _sum_up(report, dry_run, extra if delete else None)


def _stream(source, target, include, exclude, jobs, bandwidth, force, deadline, dry_run, quiet, as_json):
    """Copy standard input to an object, or an object to standard output."""
    from labkit.obs import streams

    up = source == "-"
    place = parse(target if up else source)
    if isinstance(place, Local) or not place.key or place.key.endswith("/"):
        raise click.UsageError(f"{place}: must be an object with its whole key, as the other one is -")
    if include or exclude or force or dry_run or (as_json and not up):
        wrong = "--include, --exclude, --force and --dry-run" if up or not as_json else "--json"
        raise click.UsageError(f"-: {wrong} cannot be used with it")
    if (sys.stdin if up else sys.stdout) is None:
        raise click.UsageError(f"-: standard {'input' if up else 'output'} is closed")
    limits = {"deadline": deadline, "rate": bandwidth}
    if not up:  # outside of what makes an error of a reader that goes away, as `| head` does
        with _ending_at_once(""), bar(quiet or sys.stdout.isatty()) as progress:
            streams.download(sys.stdout.buffer, place, connected(source, **limits), jobs, progress)
        return
    hint = "; `labkit obs uploads` lists what was begun"
    with failure_as_json(as_json), _ending_at_once(hint), bar(quiet) as progress:
        size = streams.upload(sys.stdin.buffer, place, connected(target, **limits), jobs, progress)
    if as_json:
        counts = {"copied": 1, "skipped": 0, "bytes": size, "failed": [], "files": [place.key.rpartition("/")[2]]}
        print_json({"source": source, "target": target, "dry_run": False, **counts})
    elif not quiet:
        click.echo(f"1 file copied, {size:,} bytes")


def _raise(failure, delete):
    for name, error in failure.report.failed[1:SHOWN]:
        warn(f"{shown(name)}: {error}")
    if delete:
        warn("nothing was removed")
    raise failure


def _sum_up(report, dry_run, removed):
    """The last line. removed: files, or None where none are asked to be."""
    would = "would be " if dry_run else ""
    copies = f"{count(report.copied)} {would}copied, {report.bytes:,} bytes; {report.skipped:,} there already"
    click.echo(copies if removed is None else f"{copies}; {count(len(removed))} {would}removed")


def _list_removals(items):
    for item in items:
        click.echo(f"would remove {item.size:13,}  {shown(item.name)}")


def _ask_to_remove(items, target):
    """List what would be removed and ask; CloudError where the answer is no, or nobody is there to answer."""
    _list_removals(items)
    try:
        agreed = click.confirm(f"Copy, then remove {count(len(items))} in {target}?", err=True)
    except click.Abort:  # no terminal
        agreed = False
    if not agreed:
        raise CloudError("nothing was copied or removed; --yes does not ask, and without --delete nothing is removed")


@contextmanager
def _ending_at_once(hint):
    """Ctrl-C and SIGTERM end the process without waiting for requests under way: a copy may be cut off anywhere."""

    def end(number, frame):
        os.write(2, f"\nstopped{hint}\n".encode())
        os._exit(128 + number)

    heard = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


for command in bucket_commands.ALL:
    obs.add_command(command)
