#!/usr/bin/env python3
"""Measures job caches in SQL databases: our follower, and stock's returner, in one run.

`make bench`, or `tests/bench/sql.py [--only saltern|stock] [--schemas pgjsonb,mysql]`. For each schema a
server of Debian (databases.py) that shares the cores with everything else. Our master takes returns
without a follower, with one, while its server is down, and while it catches up; stock's with its
returner. Then both are asked for jobs among a million in the tables: whole command lines.
Results: the figures `sql_…` in results.json, and in what is made of it, when both masters ran.

Needs `make lab` and `tests/install-stock.sh`.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

import results
from databases import HOME, PASSWORD, MariaDb, Postgres, started
from run import SALTERN, STOCK, STOCK_VERSION, Master, machine, put_load, wait_for

SERVERS = {"pgjsonb": Postgres, "mysql": MariaDb}

# So many rows of the largest table, each the return of a job of its own; the jids are of 2020.
FILL = {
    "pgjsonb": """
INSERT INTO jids SELECT '20200101' || lpad(n::text, 12, '0'),
  jsonb_build_object('jid', '20200101' || lpad(n::text, 12, '0'), 'fun', 'test.ping', 'tgt', 'm1',
    'tgt_type', 'glob', 'arg', '[]'::jsonb, 'user', 'root')
  FROM generate_series(1, {rows}) n;
INSERT INTO salt_returns (fun, jid, return, id, success, full_ret)
  SELECT 'test.ping', '20200101' || lpad(n::text, 12, '0'), 'true', 'm1', 'true',
    jsonb_build_object('jid', '20200101' || lpad(n::text, 12, '0'), 'fun', 'test.ping', 'id', 'm1',
      'return', true, 'retcode', 0, 'success', true)
  FROM generate_series(1, {rows}) n;
ANALYZE;""",
    "mysql": """
INSERT INTO jids SELECT concat('20200101', lpad(seq, 12, '0')),
  json_object('jid', concat('20200101', lpad(seq, 12, '0')), 'fun', 'test.ping', 'tgt', 'm1',
    'tgt_type', 'glob', 'arg', json_array(), 'user', 'root')
  FROM seq_1_to_{rows};
INSERT INTO salt_returns (fun, jid, `return`, id, success, full_ret)
  SELECT 'test.ping', concat('20200101', lpad(seq, 12, '0')), 'true', 'm1', '1',
    json_object('jid', concat('20200101', lpad(seq, 12, '0')), 'fun', 'test.ping', 'id', 'm1',
      'return', true, 'retcode', 0, 'success', true)
  FROM seq_1_to_{rows};
ANALYZE TABLE jids, salt_returns""",
}


class Place:
    """What `Master` wants of a site: a directory, and the options of every master here."""

    def __init__(self, top):
        self.top = top

    def options(self):
        # A job is not yet old when it is looked for.
        return "keep_jobs_seconds: 1000000000\nlocal_cache_mirror: loads\n"


def options_of(schema, server):
    if schema == "pgjsonb":
        values = {"host": server.directory, "user": "salt", "pass": PASSWORD, "db": "salt"}
        prefix = "returner.pgjsonb"
    else:
        values = {"host": "127.0.0.1", "port": server.port, "user": "salt", "pass": PASSWORD, "db": "salt"}
        prefix = "mysql"
    lines = [f"{prefix}.{name}: {value}\n" for name, value in values.items()]
    return "".join([f"master_job_cache: {schema}\n", *lines])


def make_tables(master, schema, server):
    """The tables as `saltern sql create` makes them, empty."""
    if schema == "pgjsonb":
        server.sql("DROP DATABASE IF EXISTS salt")
        server.sql("CREATE DATABASE salt")
    else:
        server.sql("DROP DATABASE salt", "mysql")
        server.sql("CREATE DATABASE salt DEFAULT CHARACTER SET utf8", "mysql")
    subprocess.run([SALTERN, "sql", "create", "-c", master.dir / "conf"], check=True, stdout=subprocess.DEVNULL)


def lag(master):
    """Rows that the follower has not stored yet."""
    with urllib.request.urlopen(f"http://127.0.0.1:{master.metrics_port}/metrics") as page:
        for line in page.read().decode().splitlines():
            if line.startswith("saltern_job_cache_lag_rows"):
                return float(line.rpartition(" ")[2])
    return 0.0


def caught_up(master, options):
    """Waits until the follower has everything; rows a second."""
    rows, began = lag(master), time.monotonic()
    wait_for("the follower", lambda: lag(master) == 0, options.patience)
    return rows / max(time.monotonic() - began, 1e-3)


def returns(master, options):
    """Returns that the master takes a second, and the time of one."""
    # The minions of each load make keys of their own.
    for key in (master.dir / "pki").glob("minions/*"):
        key.unlink()
    arguments = ["--minions", options.minions, "--seconds", options.seconds, "--phases", "returns"]
    return put_load(master, arguments)["returns"]


def measure_ours(schema, server, place, options):
    found = {}

    def keep(name):
        measured = returns(master, options)
        found[f"sql_{schema}_{name}_per_second"] = measured["per_second"]
        if "p99_ms" in measured:
            found[f"sql_{schema}_{name}_p99_ms"] = measured["p99_ms"]

    with Master("saltern", place) as master:
        keep("without")
    master = Master("saltern", place, options_of(schema, server))
    make_tables(master, schema, server)
    with master:
        keep("returns")
        caught_up(master, options)
        server.stop()
        keep("down")
        server.start()
        found[f"sql_{schema}_catch_up_rows_per_second"] = caught_up(master, options)
        server.stop()
        returns(master, options)
        server.start()
        keep("catching_up")
        caught_up(master, options)
    return found


def measure_stock(schema, server, place, options):
    master = Master("stock", place, options_of(schema, server))
    make_tables(master, schema, server)
    with master:
        return {f"sql_{schema}_returns_per_second": returns(master, options)["per_second"]}


def measure_reads(kinds, schema, server, place, options):
    """The time of command lines that look for jobs among many in the tables."""
    found = {kind: {} for kind in kinds}
    for number, kind in enumerate(kinds):
        master = Master(kind, place, options_of(schema, server))
        if number == 0:
            make_tables(master, schema, server)
            for statement in FILL[schema].format(rows=options.rows).split(";"):
                server.sql(statement, "salt")
        program = {"saltern": [SALTERN, "run"], "stock": [STOCK / STOCK_VERSION / "bin/salt-run"]}[kind]
        with master:
            for name, rounds, words in (
                ("lookup", options.rounds, lambda n: ["jobs.lookup_jid", f"20200101{1 + n * options.rows // options.rounds:012}"]),
                ("list", max(options.rounds // 10, 1), lambda _: ["jobs.list_jobs", "--out=quiet"]),
            ):
                times = []
                for n in range(rounds):
                    began = time.perf_counter()
                    command = [*program, "-c", master.dir / "conf", *words(n)]
                    done = subprocess.run(command, capture_output=True, text=True)
                    times.append(time.perf_counter() - began)
                    if done.returncode != 0:
                        print(f"  {kind}: {name} fails: {done.stdout[-300:]}{done.stderr[-300:]}", flush=True)
                        if kind == "saltern":
                            sys.exit("ours must not")
                        # It has no figure, then.
                        times.clear()
                        break
                    if name == "lookup" and "m1" not in done.stdout:
                        sys.exit(f"{kind} does not find a job: {done.stdout}{done.stderr}")
                if not times:
                    continue
                # Of fewer than a hundred the slowest.
                worst = sorted(times)[-(-len(times) * 99 // 100) - 1]
                found[kind][f"sql_{schema}_{name}_p99_ms"] = 1000 * worst
    return found


def measure(kinds, schema, place, options):
    found = {kind: {} for kind in kinds}
    with started(SERVERS[schema](place.top / schema)) as server:
        measures = {"saltern": measure_ours, "stock": measure_stock}
        for kind in kinds:
            print(f"{kind}: {schema}", flush=True)
            found[kind] |= measures[kind](schema, server, place, options)
        for kind, reads in measure_reads(kinds, schema, server, place, options).items():
            found[kind] |= reads
    print(f"  {json.dumps(found)}", flush=True)
    return found


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minions", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=10, help="how long each load lasts")
    parser.add_argument("--rows", type=int, default=1_000_000, help="jobs in the tables for reads")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--patience", type=int, default=600, help="seconds for a follower to catch up")
    parser.add_argument("--schemas", type=lambda text: text.split(","), default=list(SERVERS))
    results.add_arguments(parser)
    return parser.parse_args()


def main():
    options = arguments()
    # For stock's returners.
    os.environ["PYTHONPATH"] = str(HOME / "clients")
    results.raise_descriptor_limit()
    record = results.load(options.out, STOCK_VERSION)
    with contextlib.ExitStack() as stack:
        top = stack.enter_context(tempfile.TemporaryDirectory(prefix="sql-", dir="/tmp"))
        place = Place(pathlib.Path(top))
        for schema in options.schemas:
            for kind, found in measure(results.kinds(options), schema, place, options).items():
                results.of_master(record, kind).update(found)
    if options.only:
        return
    record["sql"] = {"rows": options.rows, "minions": options.minions, "machine": machine()}
    results.write(record, options.out)


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
