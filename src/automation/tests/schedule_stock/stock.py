"""Runs stock's scheduler under a clock that is stepped.

Reads a list of cases from standard input, writes for each the list of [tick, job] pairs that it ran.
"""

import datetime
import json
import sys
import tempfile


class Stepped(datetime.datetime):
    """A clock that shows the time it was set to."""

    shown = None

    @classmethod
    def now(cls, tz=None):
        return cls.shown


datetime.datetime = Stepped

import salt.utils.master  # noqa: E402
import salt.utils.schedule  # noqa: E402
import salt.utils.yaml  # noqa: E402

salt.utils.master.get_running_jobs = lambda opts: []


def run(case, cachedir):
    """Evaluates the schedule of a case at each of its ticks."""
    opts = {
        "__role": "master",
        "cachedir": cachedir,
        "grains": {},
        "loop_interval": case["tick"],
        "pillar": {},
        "schedule": salt.utils.yaml.safe_load(case["schedule"]),
    }
    schedule = salt.utils.schedule.Schedule(opts, {}, returners={}, new_instance=True)
    ran = []
    start = datetime.datetime.fromisoformat(case["start"])
    for tick in range(case["ticks"]):
        Stepped.shown = start + datetime.timedelta(seconds=tick * case["tick"])
        schedule._run_job = lambda func, data, jid=None: ran.append(
            [tick, data["name"] if func == "test.arg" else f"{data['name']} by {func}"]
        )
        try:
            schedule.eval()
        except Exception:  # as Maintenance.handle_schedule
            pass
    return ran


with tempfile.TemporaryDirectory() as cachedir:
    answers = [run(case, cachedir) for case in json.load(sys.stdin)]
json.dump(answers, sys.stdout)
