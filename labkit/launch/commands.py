"""`labkit rank-table`: write the list of cards for an Ascend training."""

import json
from pathlib import Path

import click


@click.command("rank-table")
@click.argument("server", nargs=-1, required=True)
@click.option("--devices", metavar="N,N,...", help="Device ids to use on each server. Default: all.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File. Default: print it.")
def rank_table(server, devices, out):
    """Write a rank table, the file that lists the cards of an Ascend training, for `labkit launch --rank-table`.

    SERVER is an address; its devices are read from this machine's /etc/hccn.conf. ADDRESS=FILE reads a copy of that
    server's hccn.conf instead, and ADDRESS=DEVICE:ADDRESS,... lists the devices. Ranks follow the order of the servers.

    \b
    Example:  labkit rank-table 10.0.0.1 --out rank_table_8p.json
              labkit rank-table 10.0.0.1=a.conf 10.0.0.2=b.conf --out rank_table_16p.json
              labkit rank-table 10.0.0.1=0:192.168.100.101,1:192.168.101.101
    """
    from labkit.launch import rank_tables
    from labkit.system.files import atomic_write

    chosen = ()
    if devices is not None:
        if not all(word.isdecimal() for word in devices.split(",")):
            raise click.BadParameter(f"must be numbers, such as 0,1, not {devices!r}", param_hint="--devices")
        chosen = tuple(sorted({int(word) for word in devices.split(",")}))
    table = rank_tables.build([rank_tables.parse_server(text) for text in server], chosen)
    text = json.dumps(table, indent=2) + "\n"
    if out:
        atomic_write(out, text)
        click.echo(out)
    else:
        click.echo(text, nl=False)
