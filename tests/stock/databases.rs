//! PostgreSQL and MariaDB of Debian, each a server of a test's own: in its directory, on a socket or a
//! loopback port of its own, never the system's service.
//!
//! `tests/install-stock.sh` unpacks them below `~/.cache/saltern/tools/databases`.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::tls::Identity;
use crate::{NEWEST, python};

/// How often a server is tried while it starts, and the time between two tries. On a machine with much
/// else to do each try takes a while itself.
const TRIES: u32 = 2_000;
const GLANCE: Duration = Duration::from_millis(30);

/// The role and database that a server is made with, and the role's password.
pub const NAME: &str = "salt";
/// The password of [`NAME`].
pub const PASSWORD: &str = "kanaloa-7";

/// Runs statements, each of them given as a line of JSON, and prints rows as JSON.
const QUERY: &str = "
import json, sys
kind, host, port, database = sys.argv[1:5]
password = sys.argv[5]
if kind == 'postgres':
    import psycopg2
    connection = psycopg2.connect(host=host, port=port, user='salt', password=password, dbname=database)
else:
    import pymysql
    connection = pymysql.connect(host=host, port=int(port), user='salt', password=password, database=database)
if kind == 'postgres':
    connection.autocommit = True
else:
    connection.autocommit(True)
cursor = connection.cursor()
rows = []
for statement in json.load(sys.stdin):
    cursor.execute(statement)
    rows = cursor.fetchall() if cursor.description else []
print(json.dumps([[None if v is None else str(v) for v in row] for row in rows]))
";

/// The kinds of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// PostgreSQL, on a socket.
    Postgres,
    /// MariaDB, on a loopback port.
    MariaDb,
}

/// A server; it is killed when this is dropped.
pub struct Server {
    kind: Kind,
    directory: PathBuf,
    port: u16,
    /// On a loopback port, whatever the kind.
    is_on_tcp: bool,
    child: Option<Child>,
}

/// Where the programs are.
///
/// # Panics
/// When they are not installed.
pub fn home() -> PathBuf {
    let home = env::var_os("HOME").expect("HOME is set");
    let home = Path::new(&home).join(".cache/saltern/tools/databases");
    assert!(
        home.join(".complete").exists(),
        "PostgreSQL and MariaDB are needed, and \"{}\" is missing: run tests/install-stock.sh",
        home.display()
    );
    home
}

impl Server {
    /// Starts a server with an empty database [`NAME`] in a directory, which should have a short path.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(kind: Kind, directory: &Path) -> Self {
        Self::started(kind, directory, false, None)
    }

    /// The same on a loopback port, and with TLS if a certificate is given.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_on_tcp(kind: Kind, directory: &Path, identity: Option<&Identity>) -> Self {
        Self::started(kind, directory, true, identity)
    }

    /// Starts a copy of a PostgreSQL that runs, which follows it from then on and answers reads only. The
    /// other one confirms a commit from then on when this has it, too.
    ///
    /// # Panics
    /// When it does not start, or is not a synchronous standby in time.
    pub fn start_standby(primary: &Self, directory: &Path) -> Self {
        let mut standby = Self::stopped(Kind::Postgres, directory, false);
        let mut copy = primary.client("pg_basebackup");
        copy.arg("--pgdata").arg(directory.join("data"));
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]);
        standby.run(copy, Stdio::null());
        standby.resume();
        primary.wait_for_standbys("ALTER SYSTEM SET synchronous_standby_names = '*'");
        standby
    }

    /// Executes a statement that sets which standbys are waited for, and waits until one is.
    fn wait_for_standbys(&self, statement: &str) {
        self.query(&[statement]);
        self.query(&["SELECT pg_reload_conf()"]);
        let mut tries = 0..TRIES;
        let synchronous = "SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        while self.count(synchronous) == 0 {
            assert!(tries.next().is_some(), "no standby:\n{}", self.log());
            thread::sleep(GLANCE);
        }
    }

    /// Makes a standby the primary: it takes writes when this returns.
    ///
    /// # Panics
    /// When it does not become one.
    pub fn promote(&self) {
        let promoted = self.query(&["SELECT pg_promote(true, 600)"]);
        assert_eq!(promoted, [[Some("True".to_owned())]], "{}", self.log());
    }

    /// Writes a dump of a schema of [`NAME`] by PostgreSQL's own program, while everything goes on.
    ///
    /// # Panics
    /// When it cannot.
    pub fn dump(&self, schema: &str, file: &Path) {
        let mut dump = self.client("pg_dump");
        dump.args(["--format=custom", "--schema", schema, "--file"]);
        dump.arg(file).arg(NAME);
        self.run(dump, Stdio::null());
    }

    /// Puts back what a dump has, into [`NAME`].
    ///
    /// # Panics
    /// When it cannot, or something of it is there already.
    pub fn restore(&self, file: &Path) {
        let mut restore = self.client("pg_restore");
        restore.args(["--exit-on-error", "--single-transaction", "--dbname", NAME]);
        restore.arg(file);
        self.run(restore, Stdio::null());
    }

    /// A program that connects to the server.
    fn client(&self, name: &str) -> Command {
        let mut client = self.program(name);
        client
            .args(["--host", &self.host(), "--username=salt"])
            .env("PGPASSWORD", PASSWORD);
        client
    }

    /// A server without data, which does not run, in a directory.
    fn stopped(kind: Kind, directory: &Path, is_on_tcp: bool) -> Self {
        fs::create_dir_all(directory).expect("a directory");
        Self {
            kind,
            directory: directory.to_owned(),
            port: 5432,
            is_on_tcp,
            child: None,
        }
    }

    fn started(kind: Kind, directory: &Path, is_on_tcp: bool, identity: Option<&Identity>) -> Self {
        let mut server = Self::stopped(kind, directory, is_on_tcp);
        if let Some(identity) = identity {
            server.write_identity(identity);
        }
        match kind {
            Kind::Postgres => server.init_postgres(),
            Kind::MariaDb => server.init_mariadb(),
        }
        server.resume();
        if kind == Kind::Postgres {
            let databases = [
                "postgres",
                "CREATE DATABASE salt ENCODING 'UTF8' TEMPLATE template0",
            ];
            server.query_in(databases[0], &databases[1..]);
        }
        server
    }

    /// The address that a client connects to.
    pub fn host(&self) -> String {
        match self.kind {
            Kind::Postgres if !self.is_on_tcp => self.directory.display().to_string(),
            Kind::Postgres | Kind::MariaDb => "127.0.0.1".to_owned(),
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills it with `-9`, all its processes: what it had not committed is lost, and nothing of it
    /// runs when this returns.
    ///
    /// # Panics
    /// When it has ended by itself.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the server runs");
        let pid = child.id();
        // Held still, it starts no others while they are counted.
        signal(pid, "STOP");
        let others = children(pid);
        child.kill().expect("a signal");
        child.wait().expect("an end");
        for other in &others {
            signal(*other, "KILL");
        }
        let mut tries = 0..TRIES;
        while others.iter().any(|other| runs(*other)) {
            assert!(tries.next().is_some(), "its processes go on: {others:?}");
            thread::sleep(GLANCE);
        }
    }

    /// Starts it again and waits until it answers.
    ///
    /// # Panics
    /// When it does not.
    pub fn resume(&mut self) {
        let mut tries = 0..TRIES;
        loop {
            let mut child = self.spawn();
            while child.try_wait().expect("a status").is_none() {
                if self.answers() {
                    self.child = Some(child);
                    return;
                }
                assert!(tries.next().is_some(), "no answer:\n{}", self.log());
                thread::sleep(GLANCE);
            }
            // Processes of a killed server end a moment after it; a port may be taken.
            assert!(tries.next().is_some(), "it does not start:\n{}", self.log());
            thread::sleep(GLANCE);
        }
    }

    /// The rows of the last of some statements.
    ///
    /// # Panics
    /// When one of them fails.
    pub fn query(&self, statements: &[&str]) -> Vec<Vec<Option<String>>> {
        self.query_in(NAME, statements)
    }

    /// One number.
    ///
    /// # Panics
    /// When the statement fails or gives something else.
    pub fn count(&self, statement: &str) -> u64 {
        let rows = self.query(&[statement]);
        let value = rows.first().and_then(|row| row.first()?.as_deref());
        value.and_then(|text| text.parse().ok()).expect("a number")
    }

    fn query_in(&self, database: &str, statements: &[&str]) -> Vec<Vec<Option<String>>> {
        let output = self.ask(database, statements);
        assert!(
            output.status.success(),
            "{statements:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        json_rows(&String::from_utf8_lossy(&output.stdout))
    }

    fn answers(&self) -> bool {
        let database = match self.kind {
            Kind::Postgres => "postgres",
            Kind::MariaDb => NAME,
        };
        let is_open = match self.kind {
            Kind::Postgres => {
                let socket = format!(".s.PGSQL.{}", self.port);
                self.directory.join(socket).exists()
            }
            Kind::MariaDb => std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok(),
        };
        is_open && self.ask(database, &["SELECT 1"]).status.success()
    }

    fn ask(&self, database: &str, statements: &[&str]) -> std::process::Output {
        let kind = match self.kind {
            Kind::Postgres => "postgres",
            Kind::MariaDb => "mysql",
        };
        let mut child = Command::new(python(NEWEST))
            .args(["-c", QUERY, kind, &self.host(), &self.port.to_string()])
            .args([database, PASSWORD])
            .env("PYTHONPATH", home().join("clients"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let question = serde_json::to_vec(statements).expect("texts");
        let mut input = child.stdin.take().expect("a pipe");
        // Where it fails before it reads, its output says so.
        let _ = input.write_all(&question);
        drop(input);
        child.wait_with_output().expect("an end")
    }

    fn write_identity(&self, identity: &Identity) {
        let write = |name: &str, pem: &[u8]| {
            let path = self.directory.join(name);
            let mut options = File::options();
            options.create(true).truncate(true).write(true).mode(0o600);
            let mut file = options.open(path).expect("a file");
            file.write_all(pem).expect("a file");
        };
        write("tls.crt", &identity.certificate_pem());
        write("tls.key", &identity.key_pem());
    }

    /// Certificate and key, if there are some.
    fn tls(&self) -> Option<[String; 2]> {
        let path = |name: &str| self.directory.join(name);
        let paths = || ["tls.crt", "tls.key"].map(|name| path(name).display().to_string());
        path("tls.key").exists().then(paths)
    }

    fn init_postgres(&self) {
        let password = self.directory.join("password");
        fs::write(&password, PASSWORD).expect("a file");
        let mut initdb = self.program("initdb");
        initdb
            .arg(format!(
                "--pgdata={}",
                self.directory.join("data").display()
            ))
            .arg(format!("--pwfile={}", password.display()))
            .args(["--username=salt", "--auth=scram-sha-256", "--no-sync"])
            .args(["--encoding=UTF8", "--locale=C"]);
        self.run(initdb, Stdio::null());
    }

    fn init_mariadb(&mut self) {
        let tables = home().join("usr/share/mysql");
        let mut script = "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\n\
                          SET @auth_root_socket=NULL;\n"
            .to_owned();
        for name in [
            "mysql_system_tables.sql",
            "mysql_performance_tables.sql",
            "mysql_system_tables_data.sql",
        ] {
            script += &fs::read_to_string(tables.join(name)).expect("MariaDB's own script");
        }
        let path = self.directory.join("bootstrap.sql");
        fs::write(&path, script).expect("a file");
        fs::create_dir_all(self.directory.join("data")).expect("a directory");
        let users = format!(
            "CREATE DATABASE IF NOT EXISTS salt DEFAULT CHARACTER SET utf8 DEFAULT COLLATE \
             utf8_general_ci;\nCREATE USER IF NOT EXISTS 'salt'@'%' IDENTIFIED BY '{PASSWORD}';\n\
             GRANT ALL ON *.* TO 'salt'@'%';\n"
        );
        fs::write(self.directory.join("users.sql"), users).expect("a file");
        let mut bootstrap = self.program("mariadbd");
        bootstrap.arg("--bootstrap");
        self.run(bootstrap, File::open(path).expect("it is there").into());
    }

    fn run(&self, mut command: Command, input: Stdio) {
        let status = command.stdin(input).status().expect("a program");
        assert!(status.success(), "{command:?}:\n{}", self.log());
    }

    fn spawn(&mut self) -> Child {
        let mut command = match self.kind {
            Kind::Postgres => {
                if self.is_on_tcp && self.port == 5432 {
                    self.port = free_port();
                }
                let mut command = self.program("postgres");
                if let Some([certificate, key]) = self.tls() {
                    command
                        .args(["-c", "ssl=on"])
                        .args(["-c", &format!("ssl_cert_file={certificate}")])
                        .args(["-c", &format!("ssl_key_file={key}")]);
                }
                let addresses = if self.is_on_tcp { "127.0.0.1" } else { "" };
                command
                    .arg("-D")
                    .arg(self.directory.join("data"))
                    .arg("-k")
                    .arg(&self.directory)
                    // A crash of the server, not of the machine, is what tests make.
                    .args(["-c", &format!("listen_addresses={addresses}")])
                    .args(["-p", &self.port.to_string(), "-c", "fsync=off"])
                    .args(["-c", "shared_buffers=16MB", "-c", "log_min_messages=fatal"]);
                command
            }
            Kind::MariaDb => {
                if self.child.is_none() && self.port == 5432 {
                    self.port = free_port();
                }
                let mut command = self.program("mariadbd");
                if let Some([certificate, key]) = self.tls() {
                    command
                        .arg(format!("--ssl-cert={certificate}"))
                        .arg(format!("--ssl-key={key}"));
                }
                command
                    .arg(format!("--port={}", self.port))
                    .arg("--bind-address=127.0.0.1")
                    .arg(format!("--socket={}", self.directory.join("s").display()))
                    .arg(format!(
                        "--init-file={}",
                        self.directory.join("users.sql").display()
                    ));
                command
            }
        };
        command.stdin(Stdio::null()).spawn().expect("a program")
    }

    /// A program of the server. Root is someone else for it: PostgreSQL refuses to serve root.
    fn program(&self, name: &str) -> Command {
        let home = home();
        let path = match self.kind {
            Kind::Postgres => {
                let versions = fs::read_dir(home.join("usr/lib/postgresql")).expect("a directory");
                let versions = versions.filter_map(|entry| Some(entry.ok()?.path()));
                let version = versions.max().expect("a version");
                version.join("bin").join(name)
            }
            Kind::MariaDb => home.join("usr/sbin").join(name),
        };
        let mut command = match self.kind {
            Kind::Postgres if is_root() => {
                let mut command = Command::new("unshare");
                command.args(["--user", "--map-user=65534"]).arg(path);
                command
            }
            Kind::Postgres => Command::new(path),
            Kind::MariaDb => {
                let mut command = Command::new(path);
                command
                    .arg("--no-defaults")
                    .arg(format!(
                        "--datadir={}",
                        self.directory.join("data").display()
                    ))
                    .arg(format!(
                        "--lc-messages-dir={}",
                        home.join("usr/share/mysql").display()
                    ))
                    // A server that starts removes what others have in a common one.
                    .arg(format!("--tmpdir={}", self.directory.display()))
                    .args(["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M"])
                    .args(["--innodb-flush-log-at-trx-commit=2", "--skip-name-resolve"]);
                if is_root() {
                    command.arg("--user=root");
                }
                command
            }
        };
        let libraries = fs::read_dir(home.join("usr/lib")).expect("a directory");
        let libraries = libraries.filter_map(|entry| Some(entry.ok()?.path()));
        let libraries = libraries.filter(|path| path.to_string_lossy().ends_with("-linux-gnu"));
        let libraries = env::join_paths(libraries).expect("paths");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.join("log"))
            .expect("a file");
        command
            .env("LD_LIBRARY_PATH", libraries)
            .stdout(log.try_clone().expect("a file"))
            .stderr(log);
        command
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The processes that a process started; those of PostgreSQL have groups of their own.
fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    let pids = text.split_whitespace().map(str::parse);
    pids.map_while(Result::ok).collect()
}

/// Whether a process runs; one that has ended and is only not yet waited for does not.
fn runs(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit(") ").next().unwrap_or_default();
    !state.is_empty() && !state.starts_with('Z')
}

/// Sends a signal to a process, which may have ended.
fn signal(pid: u32, name: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("kill -{name} {pid}")]);
    let _ = shell.stderr(Stdio::null()).status();
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0)
}

/// A port that is free now; a server that does not get it is started again.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Rows of texts and nulls.
fn json_rows(text: &str) -> Vec<Vec<Option<String>>> {
    serde_json::from_str(text).expect("rows")
}
