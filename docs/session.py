#!/usr/bin/env python3
"""Records a session with Saltern's command line as docs/session.svg, for the README.

`docs/session.py [--out FILE]`, after `make lab stock`. Starts a master of ours with stock minions of
3008.3 on loopback, kills one of them, and runs the commands in a pseudo-terminal: `salt '*'
state.apply`, of which the picture shows the moment while minions are still at work, and
`saltern follow` of the same job from elsewhere. What is on the screen is what they wrote; only the
option -c, which names the directory of the trial, is not shown.

Needs only Python's standard library.
"""

import argparse
import contextlib
import fcntl
import html
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/bench"))

from run import SALTERN, STOCK, STOCK_VERSION, Master, wait_for  # noqa: E402

COLUMNS, LINES = 116, 60

# The seconds that the work of each minion takes; the one without any is stopped before.
MINIONS = {"web1": 0, "web2": 4, "web3": None}

STATES = """
settings:
  file.managed:
    - name: {top}/{{{{ grains.id }}}}.conf
    - contents: workers = 4

reload shop:
  cmd.run:
    - name: sleep {{{{ grains.takes }}}}
"""


class Site:
    """What the master serves: one state file for all."""

    def __init__(self, top):
        self.top = top
        states = self.top / "states"
        states.mkdir()
        (states / "top.sls").write_text("base:\n  '*':\n    - shop\n")
        (states / "shop.sls").write_text(STATES.format(top=top))

    def options(self):
        return (
            f"file_roots:\n  base:\n    - {self.top}/states\nstate_output: terse\n"
            "state_verbose: True\n"
        )


class Screen:
    """A terminal of one page, as far as the commands use one: text, colours, and erased lines."""

    CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")

    def __init__(self):
        self.rows, self.row, self.column, self.style = [[]], 0, 0, ()

    def write(self, text):
        at = 0
        while at < len(text):
            if control := self.CONTROL.match(text, at):
                self.control(*control.groups())
                at = control.end()
                continue
            self.put(text[at])
            at += 1

    def put(self, char):
        if char == "\n":
            self.row += 1
            if self.row == len(self.rows):
                self.rows.append([])
        elif char == "\r":
            self.column = 0
        elif char >= " ":
            if self.column == COLUMNS:
                self.put("\n")
                self.column = 0
            line = self.rows[self.row]
            line += [(" ", ())] * (self.column + 1 - len(line))
            line[self.column] = (char, self.style)
            self.column += 1

    def control(self, numbers, letter):
        numbers = [int(number) for number in numbers.split(";") if number.isdigit()]
        if letter == "K":
            del self.rows[self.row][self.column :]
        elif letter == "A":
            self.row = max(self.row - (numbers or [1])[0], 0)
        elif letter == "m":
            for number in numbers or [0]:
                self.style = () if number == 0 else (*self.style, number)

    def lines(self):
        rows = [list(row) for row in self.rows]
        while rows and not any(char != " " for char, _ in rows[-1]):
            rows.pop()
        return rows

    def text(self):
        return "\n".join("".join(char for char, _ in row) for row in self.lines())


def record(command, is_moment=None):
    """Runs a command in a terminal; its screen in the end, and the last at which `is_moment`."""
    screen, moment = Screen(), None
    process, master = pty.fork()
    if process == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(command[0], [str(word) for word in command])
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    rest = b""
    while True:
        ready, _, _ = select.select([master], [], [], 60)
        try:
            chunk = os.read(master, 1 << 16) if ready else b""
        except OSError:
            chunk = b""
        if not chunk:
            break
        # A character, or a control sequence, may come in two pieces.
        whole = rest + chunk
        end = whole.rfind(b"\x1b")
        is_torn = end >= 0 and not re.match(rb"\x1b\[[0-9;?]*[A-Za-z]", whole[end:])
        whole, rest = (whole[:end], whole[end:]) if is_torn else (whole, b"")
        screen.write(whole.decode(errors="replace"))
        if is_moment is not None and is_moment(screen.text()):
            moment = screen.lines()
    os.close(master)
    os.waitpid(process, 0)
    return screen.lines(), moment


@contextlib.contextmanager
def minions(master, top):
    """Stock minions of these names; gives their processes."""
    processes = {}
    for name, takes in MINIONS.items():
        conf = top / "minions" / name
        conf.mkdir(parents=True)
        options = {
            "id": name,
            "master": "127.0.0.1",
            "master_port": master.ret_port,
            "publish_port": master.publish_port,
            "root_dir": conf,
            "pki_dir": conf / "pki",
            "cachedir": conf / "cache",
            "sock_dir": conf / "run",
            "log_file": conf / "log",
            "grains": f"{{takes: {takes or 0}}}",
        }
        text = "".join(f"{option}: {value}\n" for option, value in options.items())
        (conf / "minion").write_text(text)
        processes[name] = subprocess.Popen(
            [STOCK / STOCK_VERSION / "bin/salt-minion", "-c", conf],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
    try:
        yield processes
    finally:
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def session(top):
    """What is typed, and what stands on the screen then: a list of panels."""
    site = Site(top)
    with Master("saltern", site) as master, minions(master, site.top) as processes:
        salt = site.top / "salt"
        salt.symlink_to(SALTERN.resolve())
        conf = ["-c", master.dir / "conf"]
        ping = [salt, *conf, "-t", "2", "*", "test.ping"]

        def answers(count):
            found = subprocess.run(ping, capture_output=True, text=True).stdout
            return found.count("True") == count

        wait_for("the minions", lambda: answers(len(MINIONS)))
        for name, takes in MINIONS.items():
            if takes is None:
                os.killpg(processes[name].pid, signal.SIGKILL)
        absent = [SALTERN, "minions", *conf, "-w", "not present"]
        wait_for(
            "the master to miss a minion",
            lambda: subprocess.run(absent, capture_output=True).returncode == 0,
        )
        # So that modules are loaded and the picture is not of a first run.
        subprocess.run([salt, *conf, "web*", "state.show_top"], capture_output=True)
        _, moment = record(
            [salt, *conf, "*", "state.apply"],
            lambda text: re.search(r"^[1-9] of \d returned", text, re.MULTILINE),
        )
        if moment is None:
            sys.exit("there was no progress line")
        listed = [SALTERN, "run", *conf, "jobs.list_jobs", "search_function=state.apply"]
        jid = re.search(r"\d{20}", subprocess.run(listed, capture_output=True, text=True).stdout)
        followed, _ = record([SALTERN, "follow", *conf, "--out", "summary", jid[0]])
    return [
        ("salt '*' state.apply", moment),
        (f"saltern follow --out summary {jid[0]}", followed),
    ]


FONT, WIDTH, HEIGHT, MARGIN = 13, 7.83, 18, 16

# Of the SGR colours; readable on the background below, which the picture brings along, so that it
# looks the same on a dark and on a light page.
BACKGROUND, FOREGROUND, MUTED = "#1c2128", "#d6dde5", "#8b98a6"
COLOURS = {
    30: "#768390",
    31: "#f47067",
    32: "#7cc77f",
    33: "#daaa3f",
    34: "#6cb6ff",
    35: "#dcbdfb",
    36: "#76c7d6",
    37: "#d6dde5",
}


def colour(style):
    chosen = FOREGROUND
    for number in style:
        if number == 39:
            chosen = FOREGROUND
        chosen = COLOURS.get(number - 60 if number >= 90 else number, chosen)
    return chosen


def spans(row):
    """A line in pieces of one colour each."""
    pieces = []
    for char, style in row:
        of = (colour(style), 1 in style)
        if pieces and pieces[-1][0] == of:
            pieces[-1][1].append(char)
        else:
            pieces.append((of, [char]))
    return [(fill, is_bold, "".join(chars)) for (fill, is_bold), chars in pieces]


def svg(panels):
    width = MARGIN * 2 + COLUMNS * WIDTH
    out, y = [], MARGIN + FONT

    def line(pieces):
        nonlocal y
        at = 0
        for fill, is_bold, text in pieces:
            if text.strip():
                lead = len(text) - len(text.lstrip())
                x = MARGIN + (at + lead) * WIDTH
                shown = text.strip()
                weight = ' font-weight="bold"' if is_bold else ""
                # The length is said, so that any font has its columns where they belong.
                out.append(
                    f'<text x="{x:.1f}" y="{y}" fill="{fill}"{weight} xml:space="preserve" '
                    f'textLength="{len(shown) * WIDTH:.1f}">{html.escape(shown)}</text>'
                )
            at += len(text)
        y += HEIGHT

    for number, (command, rows) in enumerate(panels):
        if number:
            y += HEIGHT // 2
            out.append(
                f'<line x1="{MARGIN}" x2="{width - MARGIN:.0f}" y1="{y - HEIGHT}" '
                f'y2="{y - HEIGHT}" stroke="#444c56"/>'
            )
            y += HEIGHT // 4
        line([(MUTED, False, "$ "), (FOREGROUND, True, command)])
        for row in rows:
            line(spans(row))
    height = y - FONT + MARGIN - 4
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" font-size="{FONT}" role="img" '
        'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace">',
        "<title>A terminal: a state run with its progress line, and the same job followed</title>",
        f'<rect width="{width:.0f}" height="{height}" rx="8" fill="{BACKGROUND}" '
        'stroke="#444c56"/>',
    ]
    return "\n".join([*head, *out, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/session.svg")
    options = parser.parse_args()
    # Its name stands in the picture.
    top = pathlib.Path("/tmp/shop")
    top.mkdir()
    try:
        options.out.write_text(svg(session(top)))
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    os.umask(0o077)
    main()
