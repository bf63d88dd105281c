"""PostgreSQL and MariaDB of Debian for the benches: servers of their own, as a site would set them that
means its data (fsync stays on), never the system's service.

`tests/install-stock.sh --databases` unpacks them below `~/.cache/saltern/tools/databases`.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

from run import cpu_seconds, free_port, wait_for

HOME = pathlib.Path.home() / ".cache/saltern/tools/databases"
PASSWORD = "kanaloa-7"

POSTGRES_OPTIONS = {
    "listen_addresses": "",
    "shared_buffers": "256MB",
    "wal_compression": "lz4",
    "checkpoint_timeout": "15min",
    "max_wal_size": "4GB",
    "max_connections": "200",
}


def environment():
    libraries = (HOME / "usr/lib").glob("*-linux-gnu")
    return os.environ | {"LD_LIBRARY_PATH": ":".join(map(str, libraries))}


class Server:
    """A server in a directory of its own."""

    # Ends it at once and in order, clients or not.
    STOP = signal.SIGTERM

    def __init__(self, directory):
        self.directory, self.process = directory, None
        directory.mkdir(parents=True, exist_ok=True)

    def start(self):
        with open(self.directory / "log", "a") as log:
            self.process = subprocess.Popen(
                self.command(), env=environment(), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        wait_for(type(self).__name__, self.is_up)

    def is_up(self):
        if self.process.poll() is not None:
            sys.exit((self.directory / "log").read_text())
        return self.answers()

    def stop(self):
        if self.process:
            self.process.send_signal(self.STOP)
            self.process.wait()
            self.process = None

    def cpu(self):
        """Seconds of processor time so far: each connection of PostgreSQL is a child, in a group of its own."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return cpu_seconds([self.process.pid, *children.read_text().split()])


class Postgres(Server):
    """PostgreSQL on a socket in its directory, for the role and database `salt`."""

    # At SIGTERM it waits for its clients to leave.
    STOP = signal.SIGINT

    def __init__(self, directory, options=None):
        super().__init__(directory)
        self.options = POSTGRES_OPTIONS | (options or {})

    def make(self):
        run("initdb", "-D", self.directory / "data", "-U", "salt", "-A", "trust", "-E", "UTF8", "--no-instructions")

    def command(self):
        command = program("postgres") + ["-D", str(self.directory / "data"), "-k", str(self.directory)]
        for name, value in self.options.items():
            command += ["-c", f"{name}={value}"]
        return command

    def answers(self):
        command = program("pg_isready") + ["-q", "-h", str(self.directory)]
        return subprocess.run(command, env=environment()).returncode == 0

    def sql(self, statement, database="postgres"):
        options = ["-qAt", "-h", self.directory, "-U", "salt", "-d", database]
        return run("psql", *options, "-c", statement).decode().strip()


class MariaDb(Server):
    """MariaDB on a loopback port, for the user and database `salt`."""

    def __init__(self, directory):
        super().__init__(directory)
        self.port = free_port()

    def make(self):
        tables = HOME / "usr/share/mysql"
        names = ("mysql_system_tables", "mysql_performance_tables", "mysql_system_tables_data")
        script = "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n"
        script += "".join((tables / f"{name}.sql").read_text() for name in names)
        (self.directory / "data").mkdir()
        (self.directory / "users.sql").write_text(
            "CREATE DATABASE IF NOT EXISTS salt DEFAULT CHARACTER SET utf8 DEFAULT COLLATE utf8_general_ci;\n"
            f"CREATE USER IF NOT EXISTS 'salt'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            "GRANT ALL ON *.* TO 'salt'@'%';\n"
        )
        with open(self.directory / "log", "a") as log:
            subprocess.run(
                [*self.base(), "--bootstrap"],
                input=script.encode(), check=True, env=environment(), stdout=log, stderr=log,
            )

    def base(self):
        command = [
            HOME / "usr/sbin/mariadbd", "--no-defaults", f"--datadir={self.directory / 'data'}",
            f"--lc-messages-dir={HOME / 'usr/share/mysql'}", f"--tmpdir={self.directory}",
            "--innodb-buffer-pool-size=256M", "--skip-name-resolve",
        ]
        return [str(word) for word in command] + (["--user=root"] if os.geteuid() == 0 else [])

    def command(self):
        return [
            *self.base(), f"--port={self.port}", "--bind-address=127.0.0.1",
            f"--socket={self.directory / 's'}", f"--init-file={self.directory / 'users.sql'}",
        ]

    def answers(self):
        command = [sys.executable, "-c", MARIADB_QUERY, str(self.port), PASSWORD, "SELECT 1"]
        path = {"PYTHONPATH": str(HOME / "clients")}
        return subprocess.run(command, env=os.environ | path, capture_output=True).returncode == 0

    def sql(self, statement, database="salt"):
        command = [sys.executable, "-c", MARIADB_QUERY, str(self.port), PASSWORD, statement, database]
        path = {"PYTHONPATH": str(HOME / "clients")}
        done = subprocess.run(command, env=os.environ | path, check=True, stdout=subprocess.PIPE)
        return done.stdout.decode().strip()


# Runs one statement, and prints the first column of its rows.
MARIADB_QUERY = """
import sys, pymysql
port, password, statement = sys.argv[1:4]
connection = pymysql.connect(host="127.0.0.1", port=int(port), user="salt", password=password,
                             database=(sys.argv[4:] or ["salt"])[0], autocommit=True)
cursor = connection.cursor()
cursor.execute(statement)
for row in cursor.fetchall() if cursor.description else []:
    print(row[0])
"""


def program(name):
    """The command line of a program of PostgreSQL, which refuses to serve root: who is someone else for it."""
    path = max((HOME / "usr/lib/postgresql").iterdir()) / "bin" / name
    return (["unshare", "--user", "--map-user=65534"] if os.geteuid() == 0 else []) + [str(path)]


def run(name, *arguments):
    """Runs a program of PostgreSQL; what it prints."""
    command = program(name) + [str(argument) for argument in arguments]
    return subprocess.run(command, check=True, env=environment(), stdout=subprocess.PIPE).stdout


@contextlib.contextmanager
def started(server):
    """A server that is made, started and in the end stopped."""
    server.make()
    server.start()
    try:
        yield server
    finally:
        server.stop()
