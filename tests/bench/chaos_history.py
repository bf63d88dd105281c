#!/usr/bin/env python3
"""The checker of `make chaos`: compares what clients and minions of a cluster did with what its job database
has in the end. It is pure: a history and a store go in, anomalies come out, each with its lines of history.

A history is a list of objects, `at` in seconds of the monotonic clock that all processes of a machine share:

    {"what": "published", "jid": …, "deadline": …}   a client got this jid; when a master without a cluster
                                                     would have judged the job at the latest
    {"what": "fault", "kind": …}                     the run did something to a master or a database
    {"what": "done", "kind": …, "active": …}         it has done it, to the active master or to another one
    {"what": "authenticated", "minion": …}           and further ones of `saltern-lab swarm --history`
    {"what": "refused", "minion": …}                 (src/minion/src/history.rs)
    {"what": "received" | "executed", "minion": …, "jid": …}
    {"what": "acknowledged", "minion": …, "jid": …, "fun": …, "digest": …}  those of stock have no digest

A store has `returns`, a list of (jid, minion, digest of the value), and `jobs`, a map from jid to the time of
the verdict on the same clock, or `None` when it has none: see `verdict`.

A tree of masters adds `verdicts`, a map from jid to the state of the job and the minions that it expects: it is complete exactly
when all of these have returned.

`tests/bench/chaos_history.py` checks the checker: a sound history, and one with each violation planted.
"""

import collections
import json
import unittest

# Seconds that a takeover may take beyond the lease.
TAKEOVER = 2


# What masters ask minions about jobs; the answers are acknowledged and not kept.
PROBES = ("saltutil.running", "saltutil.find_job")
# States in which a master does not expect an answer of a minion any more.
GIVEN_UP_STATES = ("unreachable", "unknown")


def read(path):
    """The objects of a file, without a last line that was not finished."""
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.endswith("\n")]


def verdict(ended, expected, answers):
    """When a job had its verdict: at its end, or once each minion had returned or was given up. A job of which a
    minion was given up stays open for a late return. `answers` is a map from minion to the time of either."""
    if expected and all(minion in answers for minion in expected):
        known = max(answers[minion] for minion in expected)
        return known if ended is None else min(known, ended)
    return ended


def check(history, store, lease=None):
    """A list of anomalies: (kind, about whom or what, its lines of history). Times are judged only with a lease."""
    of_job, of_minion = collections.defaultdict(list), collections.defaultdict(list)
    for line in history:
        of_job[line.get("jid")].append(line)
        if line["what"] in ("authenticated", "refused"):
            of_minion[line["minion"]].append(line)
    lines_of = lambda jid, minion: [line for line in of_job[jid] if line.get("minion") in (minion, None)]
    anomalies = [(kind, (jid, minion), lines_of(jid, minion)) for kind, jid, minion in of_returns(history, store)]
    anomalies += [("executed twice", key, lines_of(*key)) for key in repeated(history, "executed")]
    for minion, lines in of_minion.items():
        kinds = collections.Counter(line["what"] for line in lines)
        if kinds["authenticated"] > 1:
            anomalies.append(("authenticated anew", minion, lines))
        if kinds["refused"]:
            anomalies.append(("refused for its serial", minion, lines))
    of_jobs_and_verdicts = [*of_jobs(history, store, lease), *of_verdicts(store)]
    anomalies += [(kind, jid, of_job[jid]) for kind, jid in of_jobs_and_verdicts]
    return anomalies


def unseen(history, minions=()):
    """What a run has not seen, without which its history says little: (kind, about whom or what). Each of these
    minions has to run a job."""
    last = max((line["at"] for line in history if line["what"] in ("fault", "done")), default=0)
    jids = {line["jid"] for line in history if line["what"] == "published" and line["at"] > last}
    if not jids:
        yield "nothing published", "after the last fault"
    executed = [line for line in history if line["what"] == "executed"]
    if not any(line["jid"] in jids for line in executed):
        yield "nothing executed", "of the jobs after the last fault"
    if not any(line["jid"] in jids for line in acknowledged(history)):
        yield "nothing acknowledged", "of the jobs after the last fault"
    for minion in minions:
        if not any(line["minion"] == minion for line in executed):
            yield "no job executed", minion


def acknowledged(history):
    """The acknowledgements of returns that are stored: without those of probes."""
    return [line for line in history if line["what"] == "acknowledged" and line["fun"] not in PROBES]


def is_given_up(job):
    """Whether each minion of an open job (`saltern explain --json`) that has not returned is given up, and there
    are some: a job without them is not judged by that."""
    missing = job["missing"]
    return bool(job["is_master_running"] and missing) and all(one["state"] in GIVEN_UP_STATES for one in missing)


def of_returns(history, store):
    """What is wrong with acknowledged and stored returns."""
    stored = collections.defaultdict(list)
    for jid, minion, digest in store["returns"]:
        stored[jid, minion].append(digest)
    for line in acknowledged(history):
        found = stored.get((line["jid"], line["minion"]))
        if not found:
            yield "acknowledged and lost", line["jid"], line["minion"]
        elif line.get("digest", found[0]) not in found:
            yield "acknowledged and changed", line["jid"], line["minion"]
    for (jid, minion), found in stored.items():
        if len(found) > 1:
            yield "stored twice", jid, minion


def repeated(history, what):
    """Pairs of job and minion of which something is there more than once."""
    counts = collections.Counter((line["jid"], line["minion"]) for line in history if line["what"] == what)
    return [key for key, count in counts.items() if count > 1]


def of_jobs(history, store, lease):
    """What is wrong with the jobs that clients know of."""
    faults = [line["at"] for line in history if line["what"] == "fault"]
    for line in history:
        if line["what"] != "published":
            continue
        jid = line["jid"]
        if jid not in store["jobs"]:
            yield "published and not stored", jid
        elif store["jobs"][jid] is None:
            yield "without a verdict", jid
        elif lease and store["jobs"][jid] > latest_verdict(line, faults, lease):
            yield "verdict too late", jid


def of_verdicts(store):
    """Jobs whose state contradicts their returns."""
    returned = collections.defaultdict(set)
    for jid, minion, _ in store["returns"]:
        returned[jid].add(minion)
    for jid, (state, expected) in store.get("verdicts", {}).items():
        is_all = set(expected) <= returned[jid]
        if state == "complete" and not is_all:
            yield "complete without all returns", jid
        elif state != "complete" and is_all and expected:
            yield "all returned and not complete", jid


def latest_verdict(published, faults, lease):
    """When a job has to have its verdict: its deadline, and a takeover for each fault until then, one at least.

    A fault counts that comes between its publication and this end, so each may move the end behind the next
    one. One that began within a lease before the publication may still be under way.
    """
    end = published["deadline"] + lease + TAKEOVER
    count = 1
    for fault in sorted(at for at in faults if at > published["at"] - lease):
        if fault > end:
            break
        if count > 1:
            end += lease + TAKEOVER
        count += 1
    return end


class Checker(unittest.TestCase):
    """A planted violation of each kind is found, and nothing in a sound history."""

    def setUp(self):
        self.history = [
            {"at": 1, "what": "authenticated", "minion": "m1"},
            {"at": 2, "what": "authenticated", "minion": "m2"},
            {"at": 3, "what": "published", "jid": "1", "deadline": 18},
            {"at": 4, "what": "fault", "kind": "kill"},
        ]
        for minion in ("m1", "m2"):
            line = {"minion": minion, "jid": "1"}
            self.history += [
                {"at": 5, "what": "received", **line},
                {"at": 6, "what": "executed", **line},
                {"at": 7, "what": "acknowledged", "fun": "test.echo", "digest": "d", **line},
            ]
        self.store = {"returns": [("1", "m1", "d"), ("1", "m2", "d")], "jobs": {"1": 20}}

    def expect(self, *kinds, lease=15):
        found = check(self.history, self.store, lease)
        self.assertEqual([kind for kind, _, _ in found], list(kinds))
        for _, _, lines in found:
            self.assertTrue(lines, found)

    def test_sound_history_has_no_anomaly(self):
        self.expect()

    def test_acknowledged_return_that_is_not_stored_is_lost(self):
        self.store["returns"].pop()
        self.expect("acknowledged and lost")

    def test_answer_to_a_probe_need_not_be_stored(self):
        line = {"at": 8, "what": "acknowledged", "minion": "m1", "jid": "2", "digest": "d"}
        self.history.append({**line, "fun": "saltutil.running"})
        self.expect()
        self.history.append({**line, "fun": "test.ping"})
        self.expect("acknowledged and lost")

    def test_other_value_than_acknowledged_is_found(self):
        self.store["returns"][1] = ("1", "m2", "other")
        self.expect("acknowledged and changed")

    def test_acknowledged_return_without_a_digest_may_have_any_value(self):
        del self.history[-1]["digest"]
        self.store["returns"][1] = ("1", "m2", "other")
        self.expect()

    def test_return_that_is_stored_twice_is_found(self):
        self.store["returns"].append(("1", "m2", "d"))
        self.expect("stored twice")

    def test_unacknowledged_return_may_be_stored_or_not(self):
        self.history = [line for line in self.history if line["what"] != "acknowledged"]
        self.store["returns"].pop()
        self.expect()

    def test_second_execution_is_found(self):
        self.history.append({"at": 9, "what": "executed", "minion": "m1", "jid": "1"})
        self.expect("executed twice")

    def test_second_authentication_is_found(self):
        self.history.append({"at": 9, "what": "authenticated", "minion": "m1"})
        self.expect("authenticated anew")

    def test_refused_serial_is_found(self):
        self.history.append({"at": 9, "what": "refused", "minion": "m1"})
        self.expect("refused for its serial")

    def test_published_job_that_is_not_stored_is_found(self):
        self.store["jobs"] = {}
        self.expect("published and not stored")

    def test_job_without_verdict_is_found(self):
        self.store["jobs"]["1"] = None
        self.expect("without a verdict")

    def test_run_without_work_after_the_last_fault_is_found(self):
        kinds = lambda *minions: [kind for kind, _ in unseen(self.history, minions)]
        nothing = ["nothing published", "nothing executed", "nothing acknowledged"]
        self.assertEqual(kinds(), nothing)
        self.history.append({"at": 10, "what": "published", "jid": "2", "deadline": 25})
        self.assertEqual(kinds(), nothing[1:])
        line = {"at": 11, "minion": "m1", "jid": "2"}
        self.history.append({**line, "what": "executed"})
        self.history.append({**line, "what": "acknowledged", "fun": "saltutil.find_job", "digest": "d"})
        self.assertEqual(kinds("m1"), nothing[2:])
        self.history.append({**line, "what": "acknowledged", "fun": "test.echo", "digest": "d"})
        self.assertEqual(kinds("m1"), [])
        self.assertEqual(kinds("m1", "stock"), ["no job executed"])
        self.assertEqual([kind for kind, _ in unseen([])], nothing)

    def test_job_is_given_up_only_with_minions_that_are(self):
        for states, is_running, is_it in (
            ([], True, False),
            (["unreachable", "unknown"], True, True),
            (["unreachable"], False, False),
            (["unreachable", "running"], True, False),
        ):
            missing = [{"state": state} for state in states]
            self.assertIs(is_given_up({"is_master_running": is_running, "missing": missing}), is_it)

    def test_verdict_is_the_last_answer_or_the_end(self):
        for ended, answers, expected in (
            (None, {}, None),
            (None, {"m1": 5}, None),
            (None, {"m1": 5, "m2": 8}, 8),
            (300, {"m1": 5, "m2": 8, "m3": 9}, 8),
            (7, {"m1": 5, "m2": 8}, 7),
            (7, {"m1": 5}, 7),
        ):
            self.assertEqual(verdict(ended, {"m1", "m2"}, answers), expected)
        self.assertEqual(verdict(None, set(), {}), None)

    def test_verdict_that_contradicts_the_returns_is_found(self):
        for state, returned, kinds in (
            ("complete", ("m1", "m2"), ()),
            ("expired", ("m1", "m2", "m3"), ()),
            ("complete", ("m1", "m2", "m3"), ("complete without all returns",)),
            ("expired", ("m1", "m2"), ("all returned and not complete",)),
        ):
            self.store["verdicts"] = {"1": (state, returned)}
            self.expect(*kinds)

    def test_late_verdict_is_found_only_with_a_lease(self):
        # The deadline, the lease and two seconds: 35.
        self.store["jobs"]["1"] = 35
        self.expect()
        self.store["jobs"]["1"] = 36
        self.expect("verdict too late")
        self.expect(lease=None)

    def test_each_further_fault_gives_one_more_takeover(self):
        self.store["jobs"]["1"] = 52
        self.history.append({"at": 36, "what": "fault", "kind": "kill"})
        self.expect("verdict too late")
        self.history[-1]["at"] = 34
        self.expect()


if __name__ == "__main__":
    unittest.main()
