"""One helper of a Saltern master: runs what only Python can run, with the site's own Salt.

It reads requests from the pipe that it was started with and answers on the other one, one after the
other. A frame is four bytes of length, big-endian, and as many bytes of MessagePack. The end of the
requests is the end of the helper: the master is gone then.

It is one file, however long, because Python gets it as one text.

Nothing secret is printed or logged from here: messages of Salt from warnings on, and the tracebacks
of failed calls, go to standard error, which the master reads into its own log.
"""

import copy
import io
import json
import logging
import mmap
import os
import re
import resource
import select
import signal
import sys
import threading
import traceback

# What the master takes as one answer; it refuses more.
LONGEST = 64 << 20


class Refused(Exception):
    """What was asked for does not exist; the caller receives the text."""


# --- the pipes


class Pipes:
    """The two ends to the master, moved away from standard input and output.

    Whatever modules print goes to standard error instead.
    """

    def __init__(self):
        os.closerange(3, 1 << 16)
        self.requests = os.dup(0)
        self.replies = os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)

    def take(self, count):
        taken = bytearray()
        while len(taken) < count:
            piece = os.read(self.requests, count - len(taken))
            if not piece:
                raise EOFError
            taken += piece
        return bytes(taken)

    def take_frame(self):
        return self.take(int.from_bytes(self.take(4), "big"))

    def give(self, packed):
        rest = memoryview(len(packed).to_bytes(4, "big") + packed)
        while rest:
            rest = rest[os.write(self.replies, rest) :]

    def watch(self):
        """Waits beside the work until the master is gone."""

        def wait():
            poll = select.poll()
            poll.register(self.requests, 0)
            poll.poll()
            self.end_with_master()

        threading.Thread(target=wait, daemon=True).start()

    def end_with_master(self):
        """Ends this process and what it started if the master is gone."""
        poll = select.poll()
        poll.register(self.requests, 0)
        if poll.poll(0):
            os.killpg(os.getpgrp(), signal.SIGKILL)


class Lines(logging.Handler):
    """Log records as lines of standard error, each with a mark and its level."""

    def emit(self, record):
        try:
            level = "E" if record.levelno >= logging.ERROR else "W"
            say(level, f"{record.name}: {record.getMessage()}")
            if record.exc_info:
                say("D", "".join(traceback.format_exception(*record.exc_info)))
        except Exception:
            self.handleError(record)


def say(level, text):
    lines = text.rstrip("\n").split("\n")
    message = "".join(f"\x01{level}{line}\n" for line in lines)
    os.write(2, message.encode("utf-8", "backslashreplace"))


# --- what failed, in few words


def reason_of(error):
    """The text of an exception.

    Some exceptions of Salt have a whole traceback as their text; then its last line counts.
    """
    try:
        text = without_traceback(str(error))
    except Exception:
        text = ""
    return text or type(error).__name__


def without_traceback(text):
    if "Traceback (most recent call last)" not in text:
        return text
    lines = [line for line in text.splitlines() if line.strip()]
    say("D", text)
    return lines[-1].strip()


class BriefTraceback:
    """In the place of `traceback` where Salt puts one into a result."""

    @staticmethod
    def format_exc(*_args, **_kwargs):
        error = sys.exc_info()[1]
        say("D", traceback.format_exc())
        if type(error).__module__ == "salt.exceptions":
            return reason_of(error)
        return f"{type(error).__name__}: {reason_of(error)}"


# --- how far a call in a process of its own has come


class Progress:
    """What a child has said, where its parent can see it however the child ends."""

    NOTHING, IN_A_FRAME, DONE = range(3)

    def __init__(self):
        self.shared = mmap.mmap(-1, 1)
        self.speaking = threading.Lock()

    def give(self, pipes, packed, is_last):
        with self.speaking:
            self.shared[0] = self.IN_A_FRAME
            pipes.give(packed)
            self.shared[0] = self.DONE if is_last else self.NOTHING

    def reached(self):
        return self.shared[0]


# --- which files of Salt may have a module


class ModuleFiles:
    """Loads a module by name without loading all of Salt's, as `LazyLoader.__getattr__` would.

    A module is named by its file or by a text in it (`__virtualname__` and its like). Stock loads
    the file of that name, then those whose names contain it, then all others; here of the others
    only those that write the name. Files of the site, which may compute it, are always loaded.
    """

    MOST_NAMES = 1000

    def __init__(self):
        self.top = None
        # Names of modules with the files of Salt's own that write them. Such files do not change.
        self.writers = {}

    def find(self, functions, name):
        """Whether a module, or a function `module.function`, is there. It is loaded then."""
        module, dot, _ = name.partition(".")
        if not hasattr(functions, "file_mapping"):
            return name in functions if dot else hasattr(functions, module)
        if functions.whitelist and module not in functions.whitelist:
            return False

        def is_there():
            return name in functions._dict if dot else module in functions.loaded_modules

        if not is_there() and not functions.loaded:
            for file in self.candidates(functions.file_mapping, module):
                if file not in functions.loaded_files and functions._load_module(file) and is_there():
                    break
        return is_there()

    def candidates(self, files, module):
        if module in files:
            yield module
        yield from [file for file in files if module in file]
        others = [file for file in files if module not in file]
        if module not in self.writers:
            if len(self.writers) >= self.MOST_NAMES:
                self.writers.clear()
            named = re.compile(rb"""["']%s["']""" % re.escape(module.encode()))
            self.writers[module] = {file for file in others if self.may_have(files[file], named)}
        yield from [
            file for file in others if file in self.writers[module] or not self.is_salts(files[file])
        ]

    def is_salts(self, entry):
        if self.top is None:
            import salt.syspaths

            self.top = os.path.realpath(salt.syspaths.INSTALL_DIR) + os.sep
        return entry[0].startswith(self.top)

    def may_have(self, entry, pattern):
        path = entry[0]
        if not self.is_salts(entry):
            return False
        if os.path.isdir(path):
            path = os.path.join(path, "__init__" + entry[1])
        try:
            with open(path, "rb") as source:
                return pattern.search(source.read()) is not None
        except OSError:
            return True


# --- the steps of an orchestration


class Steps:
    """Reports each step of an orchestration as it ends.

    Stock announces the end of a state with the option `state_events` only, which a master does not
    have by default, and that of a parallel one never. A report that fails changes nothing.
    """

    MOST_CHARACTERS = 500

    def __init__(self, report):
        self.report = report

    def follow(self, state):
        """Follows the states that this class runs (`State` in salt/state.py)."""
        steps = self
        event, reconcile = state.event, state.reconcile_procs

        def event_and_report(self, chunk_ret, *args, **kwargs):
            steps.ended(self, chunk_ret)
            return event(self, chunk_ret, *args, **kwargs)

        def reconcile_and_report(self, running):
            begun = steps.under_way(self, running)
            result = reconcile(self, running)
            left = steps.under_way(self, running)
            for tag, ret in begun.items():
                if tag not in left:
                    steps.ended(self, running.get(tag), ret)
            return result

        state.event, state.reconcile_procs = event_and_report, reconcile_and_report

    @staticmethod
    def under_way(state, running):
        """Results, by tag, of parallel states whose processes have not been awaited yet. 3008 keeps
        the processes in the object, earlier releases in the results."""
        procs = getattr(state, "procs", None) or ()
        return {
            tag: dict(ret)
            for tag, ret in list(running.items())
            if isinstance(ret, dict) and (tag in procs or "proc" in ret)
        }

    @staticmethod
    def is_under_way(state, ret):
        """Whether it is the result of one of them."""
        if "proc" in ret:
            return True
        procs = getattr(state, "procs", None) or {}
        ids = [one.low.get("__id__") for one in procs.values()]
        return ret.get("result") is None and ret.get("__id__") in ids

    def ended(self, state, ret, begun=None):
        try:
            if isinstance(ret, dict) and not self.is_under_way(state, ret):
                self.report(self.described(ret, begun or {}))
        except Exception:
            say("D", traceback.format_exc())

    def described(self, ret, begun):
        def text(name):
            value = ret.get(name) or begun.get(name) or ""
            if isinstance(value, (list, tuple)):
                value = "\n".join(map(str, value))
            return str(value)[: self.MOST_CHARACTERS]

        result = ret.get("result")
        return {
            "id": text("__id__"),
            "name": text("name"),
            "sls": text("__sls__"),
            "result": result if result is None else bool(result),
            "comment": text("comment"),
            "has_changes": bool(ret.get("changes")),
        }


# --- what is done for one minion


class Subject:
    """The loaders of the compilation of one pillar, as stock's compiler makes them."""

    def __init__(self, opts, work):
        import salt.pillar

        self.token = work["token"]
        opts = copy.deepcopy(opts)
        if work["pillar"]:
            opts["pillar"] = work["pillar"]
        self.pillar = salt.pillar.Pillar(
            opts,
            work["grains"],
            work["minion"],
            work["saltenv"],
            pillarenv=work["pillarenv"],
            extra_minion_data=work["extra_minion_data"],
        )


class Helper:
    def __init__(self, pipes, settings):
        import salt.config
        import salt.payload
        import salt.version

        self.pipes = pipes
        self.opts = salt.config.master_config(settings["conf_file"])
        # As the option --config-dir of stock's programs sets it: rosters lie there.
        self.opts.setdefault("config_dir", os.path.dirname(settings["conf_file"]))
        self.subject = None
        self.minion = None
        self.pid = os.getpid()
        self.progress = None
        self.loads = salt.payload.loads
        self.dumps = salt.payload.dumps
        self.version = salt.version.__version__
        self.forks = settings["forks"]
        self.modules = ModuleFiles()

    def serve(self):
        self.reply({"up": self.version})
        while True:
            try:
                packed = self.pipes.take_frame()
            except EOFError:
                return
            work = self.loads(packed, encoding="utf-8")
            del packed
            if self.forks:
                self.in_child(work)
            else:
                self.answer(work)

    def in_child(self, work):
        """Does the work in a process of its own, as stock runs its runners: what it loads and
        changes is gone afterwards. There must be no thread here to be lost in it."""
        self.progress = Progress()
        child = os.fork()
        if child == 0:
            try:
                self.pid = os.getpid()
                self.answer(work)
            finally:
                os._exit(0)
        end = os.pidfd_open(child)
        poll = select.poll()
        poll.register(end, select.POLLIN)
        poll.register(self.pipes.requests, 0)
        poll.poll()
        os.close(end)
        self.pipes.end_with_master()
        _, status = os.waitpid(child, 0)
        reached = self.progress.reached()
        self.progress = None
        if reached == Progress.DONE:
            return
        if os.WIFSIGNALED(status):
            how = f"was ended by signal {os.WTERMSIG(status)}"
        else:
            how = f"ended with code {os.WEXITSTATUS(status)}"
        if reached == Progress.IN_A_FRAME:
            # Whatever came now would be taken for the rest of what it had begun to say.
            say("E", f"the process of a call {how} while it answered")
            os._exit(1)
        self.reply({"failed": f"its process {how} before it answered"})

    def answer(self, work):
        try:
            packed = self.packed({"ok": getattr(self, "do_" + work["do"])(work)})
        except Refused as error:
            packed = self.packed({"refused": str(error)})
        # Also what asks a whole process to end: it is the end of this work alone.
        except BaseException as error:
            say("D", traceback.format_exc())
            kind = "refused" if is_refusal(error) else "failed"
            packed = self.packed({kind: reason_of(error)})
        self.give(packed, is_last=True)

    def packed(self, reply):
        reply["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        packed = self.dumps(reply, use_bin_type=True)
        if len(packed) > LONGEST:
            raise Refused(f"the result has {len(packed)} bytes, more than are allowed")
        return packed

    def reply(self, reply):
        self.give(self.packed(reply), is_last=False)

    def give(self, packed, is_last):
        is_copy = os.getpid() != self.pid
        if is_copy and is_last:
            # What was called has forked and returned twice; one answer is enough.
            os._exit(0)
        if self.progress and not is_copy:
            self.progress.give(self.pipes, packed, is_last)
        else:
            self.pipes.give(packed)

    # --- for pillars

    def pillar_of(self, work):
        subject = work["subject"]
        if self.subject is None or self.subject.token != subject["token"]:
            self.subject = None
            self.subject = Subject(self.opts, subject)
        return self.subject.pillar

    def do_render(self, work):
        import salt.utils.stringio

        pillar = self.pillar_of(work)
        name = work["renderer"]
        if name not in pillar.rend:
            raise Refused("there is no such renderer")
        source = work["input"]
        if isinstance(source, str):
            source = io.StringIO(source)
        given = dict(work["defaults"])
        if work["argument"]:
            given["argline"] = work["argument"]
        rendered = pillar.rend[name](
            source,
            work["saltenv"],
            work["sls"],
            renderers=pillar.rend,
            tmplpath=work["path"],
            _pillar_rend=True,
            **given,
        )
        if salt.utils.stringio.is_readable(rendered):
            return {"text": rendered.read()}
        return {"data": rendered}

    def do_ext_pillar(self, work):
        pillar = self.pillar_of(work)
        name = work["name"]
        if name not in pillar.ext_pillars:
            raise Refused("there is no such module")
        return pillar._external_pillar_data(work["pillar"], work["arguments"], name)

    def do_has(self, work):
        return self.modules.find(self.pillar_of(work).functions, work["name"])

    def do_call(self, work):
        functions = self.pillar_of(work).functions
        name = work["name"]
        self.modules.find(functions, name)
        return functions[name](*work["positional"], **work["named"])

    def do_tops(self, work):
        import salt.loader

        tops = salt.loader.tops(self.opts)
        name = work["name"]
        if name not in tops:
            raise Refused("there is no such module")
        return tops[name](opts=work["opts"], grains=work["opts"].get("grains", {}))

    # --- for log-ins

    def do_log_in(self, work):
        """Whether a module knows somebody, and what it and the configuration let such a user do."""
        import salt.auth

        name = work["eauth"]
        load = {key: work[key] for key in ("eauth", "username", "password")}
        loaded = salt.auth.LoadAuth(self.opts_for(name, work["username"]))
        if f"{name}.auth" not in loaded.auth:
            raise Refused("there is no such module")
        # The master itself answers late who is not known.
        loaded.max_fail = 0.0
        if not loaded.time_auth(load):
            return {"known": False}
        rights = loaded.get_auth_list(load)
        return {
            "known": True,
            "groups": [str(group) for group in loaded.get_groups(load) or []],
            "auth_list": rights if rights is None else list(rights),
        }

    def opts_for(self, eauth, user):
        """The options with the rules that may hold for a user. Stock takes the name of a user for a
        pattern over those in the configuration, so that of the others none must be there."""
        everybody = [] if self.opts.get("permissive_acl") else ["*"]
        entries = self.opts["external_auth"][eauth] or {}
        kept = {
            name: rules
            for name, rules in entries.items()
            if name in [user, *everybody] or name.endswith("%") or name.startswith("^")
        }
        auth = dict(self.opts["external_auth"], **{eauth: kept})
        return dict(self.opts, external_auth=auth)

    # --- for returners

    def returners(self):
        if self.minion is None:
            import salt.minion

            # As stock's master makes it for events and jobs: what it needs no states for.
            opts = dict(copy.deepcopy(self.opts), file_client="local")
            self.minion = salt.minion.MasterMinion(opts, states=False, rend=False)
        return self.minion.returners

    def do_returner(self, work):
        """Calls functions of a returner. A step that fails does not keep later ones from being tried,
        unless too many fail one after the other. The result of each step is reported at once, so
        that the master has it even if a later step ends this process."""
        returners = self.returners()
        name = work["name"]
        if f"{name}.{work['needs']}" not in returners:
            raise Refused(f"there is no such returner with a function \"{work['needs']}\"")
        results = []
        failures = 0
        for step in work["steps"]:
            results.append(self.returner_step(returners, name, step))
            if os.getpid() != self.pid:
                # What was called has forked and returned twice; the rest is for one of them.
                os._exit(0)
            self.reply({"event": "step", "data": results[-1]})
            failures = failures + 1 if results[-1] else 0
            if failures >= work["patience"]:
                break
        return results

    def returner_step(self, returners, name, step):
        problem = None
        for call in step:
            function = f"{name}.{call['fun']}"
            try:
                if function in returners:
                    returners[function](*call["args"], **call["kwargs"])
                elif call["decides"]:
                    problem = f"it has no function \"{call['fun']}\""
            except Exception as error:
                say("D", traceback.format_exc())
                if call["decides"]:
                    problem = reason_of(error)
                else:
                    say("W", f"{function}: {reason_of(error)}")
        return problem

    # --- for as long as the master runs

    def do_engine(self, work):
        """Runs an engine until it ends (`start_engines` and `Engine.run` in salt/engines). Its
        events go by the sockets of the master, as those of any program of the machine."""
        import salt.loader

        # What is asked to end has a chance to clear up, as in stock.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        utils = salt.loader.utils(self.opts)
        runners = salt.loader.runner(self.opts, utils=utils)
        functions = salt.loader.minion_mods(self.opts, utils=utils)
        engines = salt.loader.engines(self.opts, functions, runners, utils)
        start = work["module"] + ".start"
        if start not in engines:
            raise Refused("there is no such engine")
        try:
            engines[start](**work["options"])
        except SystemExit:
            # Its end, like a return.
            pass

    # --- for users

    def do_runner(self, work):
        import salt.runner

        return self.low(salt.runner.RunnerClient, work)

    def do_wheel(self, work):
        import salt.wheel

        return self.low(salt.wheel.WheelClient, work)

    def do_caller(self, work):
        import salt.client

        caller = salt.client.Caller(self.opts["conf_file"])
        caller.cmd(work["fun"], *work["positional"], **work["named"])

    def low(self, base, work):
        """Runs a function as stock's client does (`SyncClientMixin.low`), but its events go to the
        master by the pipe, and the master keeps the result."""
        from salt.client import mixins

        helper = self

        class Client(base):
            mminion = None
            store_job = False

        class Events:
            def __init__(self, event, *_args, **_kwargs):
                self.event = event

            def __enter__(self):
                return self

            def __exit__(self, *_error):
                self.event.destroy()

            def fire_event(self, data, tag):
                # The end is the answer itself.
                if tag != "ret":
                    helper.reply({"event": tag, "data": data})

        mixins.salt.utils.event.NamespacedEvent = Events
        mixins.traceback = BriefTraceback
        low = {
            "arg": work["positional"],
            "kwarg": work["named"],
            "__jid__": work["jid"],
            "__user__": work["user"],
            "__tag__": work["tag"],
        }
        if base.__name__ == "RunnerClient" and work["fun"].startswith("state."):
            self.report_steps()
        client = Client(copy.deepcopy(self.opts))
        try:
            # Stock 3008 stumbles over its own clean-up after a function that is not there.
            if work["fun"] not in client.functions:
                raise Refused(client.functions.missing_fun_string(work["fun"]))
            return client.low(work["fun"], low, print_event=False, full_return=True)
        finally:
            client.destroy()

    def report_steps(self):
        import salt.state

        def report(step):
            # A state of a process of its own must not speak between the words of this one.
            if os.getpid() == self.pid:
                self.reply({"event": "saltern_step", "data": step})

        Steps(report).follow(salt.state.State)


def is_refusal(error):
    """Whether a function refused, in the classes that stock's templates distinguish."""
    import salt.exceptions

    return isinstance(
        error, (salt.exceptions.CommandExecutionError, salt.exceptions.SaltInvocationError)
    )


def main():
    pipes = Pipes()
    settings = json.loads(pipes.take_frame())
    if not settings["forks"]:
        pipes.watch()
    if settings["umask"] is not None:
        os.umask(settings["umask"])
    memory = settings["memory"]
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        helper = Helper(pipes, settings)
    except (Exception, SystemExit) as error:
        say("D", traceback.format_exc())
        say("E", f"Salt cannot be loaded: {type(error).__name__}: {reason_of(error)}")
        os._exit(1)
    logging.root.handlers[:] = [Lines()]
    logging.root.setLevel(logging.WARNING)
    helper.serve()


main()
