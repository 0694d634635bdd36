"""The commands of labkit obs about what is in a bucket: they copy nothing."""

import click

from labkit.obs.console import (
    AS_JSON,
    DRY_RUN,
    QUIET,
    Place,
    connected,
    count,
    deadline,
    failure_as_json,
    fields,
    print_json,
    shown,
    with_options,
)
from labkit.obs.place import CloudError, Local, Remote, parse

DEADLINE = deadline()


@click.command()
@click.argument("place", metavar="PLACE", type=Place())
@with_options(DEADLINE, AS_JSON)
def ls(place, deadline, as_json):
    """List the files of PLACE, with all below it, and their sizes in bytes.

    \b
    Example:  labkit obs ls obs://my-bucket/runs/mine
    """
    from labkit.obs import copying

    with failure_as_json(as_json):
        found = copying.ls(place, store=connected(place, deadline=deadline))
        if not found and isinstance(parse(place), Remote) and parse(place).prefix:
            raise CloudError(f"{place}: there is no such object or folder")
    total = sum(item.size for item in found)
    if as_json:
        files = [{"name": item.name, "size": item.size} for item in found]
        print_json({"place": place, "files": files, "bytes": total})
        return
    for item in found:
        click.echo(f"{item.size:15,}  {shown(item.name)}")
    click.echo(f"{total:15,}  bytes in {count(len(found))}", err=True)


@click.command()
@click.argument("url", type=Place())
@click.option("--recursive", is_flag=True, help="Remove all below URL.")
@click.option("--yes", is_flag=True, help="Empty a whole bucket; the bucket itself stays.")
@with_options(DEADLINE, DRY_RUN, QUIET, AS_JSON)
def rm(url, recursive, yes, deadline, dry_run, quiet, as_json):
    """Remove the object URL, or with --recursive all below the folder URL.

    Files of this machine are not removed. A whole bucket takes --recursive and --yes.

    \b
    Example:  labkit obs rm obs://my-bucket/models/old.ckpt
              labkit obs rm obs://my-bucket/runs/old --recursive --dry-run
    """
    from labkit.obs import copying

    place = parse(url)
    if isinstance(place, Local):
        raise click.UsageError(f"{url}: only objects are removed, no files of this machine")
    if not recursive and (not place.key or place.key.endswith("/")):
        raise click.UsageError(f"{url}: what is in a folder or bucket is removed with --recursive")
    if not place.prefix and not yes and not dry_run:
        raise click.UsageError(f"{url}: a whole bucket is emptied with --yes; look first with --dry-run")
    failure = None
    with failure_as_json(as_json):
        store = connected(url, deadline=deadline)
        try:
            keys = copying.rm(url, recursive=recursive, empty_bucket=yes or dry_run, dry_run=dry_run, store=store)
        except copying.RemoveError as error:
            keys, failure = error.removed, error
    if as_json:
        failed = [{"key": key, **fields(error)} for key, error in failure.failed] if failure else []
        print_json({"url": url, "dry_run": dry_run, "removed": keys, "failed": failed})
    elif not quiet or dry_run:
        for key in keys:
            click.echo(f"{'would remove' if dry_run else 'removed'}  obs://{place.bucket}/{shown(key)}")
    if failure:
        raise failure
