//! The native minion, our client and stock Salt: stock's master, and stock's `salt` command.
//!
//! Stock is looked for where `tests/install-stock.sh` puts it; without it these tests fail and
//! say so. Each starts a master of its own, in a directory and on ports of its own.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use saltern_channel::MinionConfig;
use saltern_client::{
    ClientConfig, ClientError, EventListener, LocalClient, MinionOutcome, PublishRequest,
};
use saltern_minion::Minion;
use saltern_wire::msgpack::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How long a whole test may take on a busy machine with two cores: each command of stock starts Python.
const TEST_TIMEOUT: Duration = Duration::from_secs(480);

#[test]
fn a_native_minion_works_for_a_stock_3008_master() {
    exercise("3008.3");
}

#[test]
fn a_native_minion_works_for_a_stock_3007_master() {
    exercise("3007.15");
}

#[test]
fn a_native_minion_works_for_a_stock_3006_master() {
    exercise("3006.28");
}

fn exercise(version: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        timeout(TEST_TIMEOUT, whole_life(version))
            .await
            .expect("it takes no longer than its patience");
    });
}

async fn whole_life(version: &str) {
    let mut site = Site::new(version);
    site.start_master().await;
    let mut events = site.events().await;
    let stop = CancellationToken::new();
    let config = MinionConfig::load(&site.path("minion_conf")).expect("a valid configuration");
    assert_eq!(config.findings, []);
    let minion = tokio::spawn(Minion::new(config.config).run(stop.clone()));
    // The last of its start events: from here on it is subscribed.
    site.wait_for(&mut events, "salt/minion/native/start").await;

    // Stock's command line.
    let ping = site.salt(&["*", "test.ping"]).await;
    assert_eq!(ping, (0, "native:\n    True\n".to_owned()));
    let failing = site
        .salt(&["native", "cmd.run", "echo hello; exit 3"])
        .await;
    assert_eq!(failing, (1, "native:\n    hello\n".to_owned()));
    let missing = site.salt(&["native", "no.such"]).await;
    assert_eq!(
        missing,
        (1, "native:\n    'no.such' is not available.\n".to_owned())
    );
    let filtered = site
        .salt(&["-E", "nat(ive|ure)$", "test.echo", "text"])
        .await;
    assert_eq!(filtered, (0, "native:\n    text\n".to_owned()));
    // Longer than the timeout: answered only because find_job finds the job.
    let long = site
        .salt(&["-t", "3", "native", "cmd.run", "sleep 8; echo woke"])
        .await;
    assert_eq!(long, (0, "native:\n    woke\n".to_owned()));

    // Our client.
    let client = site.client();
    let both = [Value::from("native"), Value::from("ghost")];
    let request = PublishRequest::new(Value::from(both.to_vec()), "list", "test.ping", vec![]);
    let answers = all_answers(&client, &request).await;
    assert!(
        matches!(&answers[..], [MinionOutcome::Returned(one), MinionOutcome::NoResponse { id, .. }]
            if one.id == "native" && one.value == Value::from(true) && id == "ghost"),
        "{answers:?}"
    );
    let nobody = PublishRequest::new(Value::from("x*"), "glob", "test.ping", vec![]);
    let refused = client.publish(&nobody).await.expect_err("nobody matches");
    assert!(matches!(refused, ClientError::NoMinions), "{refused}");
    end_a_long_job(&client).await;

    // A new shared key: the minion signs in anew and runs the same publication.
    site.rotate_key(version);
    site.wait_for(&mut events, "key").await;
    assert_eq!(site.salt(&["*", "test.ping"]).await, ping);

    // A master that went away and came back.
    site.stop_master().await;
    site.start_master().await;
    site.until_subscribed().await;
    // Its port takes connections before there is a worker to read what they bring.
    until(async || match client.publish(&nobody).await {
        Err(ClientError::NoMinions) => Ok(()),
        other => Err(other),
    })
    .await;
    assert_eq!(site.salt(&["*", "test.ping"]).await, ping);

    stop.cancel();
    minion
        .await
        .expect("it does not panic")
        .expect("it stops without an error");
    site.stop_master().await;
}

async fn end_a_long_job(client: &LocalClient) {
    let sleep = PublishRequest::new(
        Value::from("native"),
        "glob",
        "cmd.run",
        vec![Value::from("sleep 600")],
    );
    let published = client.publish(&sleep).await.expect("it is published");
    let jid = Value::from(published.jid.as_str());
    let find = PublishRequest::new(
        Value::from("native"),
        "glob",
        "saltutil.find_job",
        vec![jid.clone()],
    );
    let found = the_value(client, &find).await;
    assert_eq!(found.get("jid"), Some(&jid));
    assert_eq!(found.get("fun"), Some(&Value::from("cmd.run")));
    let pid = found
        .get("pid")
        .and_then(Value::as_i64)
        .expect("a process id");
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    let kill = PublishRequest::new(
        Value::from("native"),
        "glob",
        "saltutil.kill_job",
        vec![jid],
    );
    let text = format!("Signal 9 sent to job {} at pid {pid}", published.jid);
    assert_eq!(the_value(client, &kill).await, Value::from(text));
    assert_eq!(the_value(client, &find).await, Value::Map(Vec::new()));
}

async fn all_answers(client: &LocalClient, request: &PublishRequest) -> Vec<MinionOutcome> {
    let mut job = client.run(request).await.expect("it is published");
    let mut answers = Vec::new();
    while let Some(answer) = job.next().await.expect("the bus stays") {
        answers.push(answer);
    }
    answers
}

async fn the_value(client: &LocalClient, request: &PublishRequest) -> Value {
    match all_answers(client, request).await.as_slice() {
        [MinionOutcome::Returned(one)] => one.value.clone(),
        answers => panic!("one answer was expected: {answers:?}"),
    }
}

/// A stock installation, a directory, a master.
struct Site {
    directory: TempDir,
    programs: PathBuf,
    publish_port: u16,
    ret_port: u16,
    master: Option<Child>,
}

impl Site {
    fn new(version: &str) -> Self {
        let master = saltern_stock::program(version, "salt-master");
        let programs = master.parent().expect("a directory").to_owned();
        let directory = tempfile::Builder::new()
            .prefix("stk")
            .tempdir()
            .expect("a directory");
        let (publish_port, ret_port) = free_ports();
        // Both must agree; each way is tried with some release.
        let filtering = version.starts_with("3008");
        let site = Self {
            directory,
            programs,
            publish_port,
            ret_port,
            master: None,
        };
        let root = site.directory.path().display().to_string();
        site.write(
            "conf/master",
            &format!(
                "root_dir: {root}\nuser: root\ninterface: 127.0.0.1\npublish_port: {publish_port}\n\
                 ret_port: {ret_port}\nauto_accept: True\nworker_threads: 2\npki_dir: pki\n\
                 cachedir: cache\nsock_dir: sock\nlog_file: log\ntimeout: 60\n\
                 gather_job_timeout: 10\nloop_interval: 1\nid: stock_master\n\
                 zmq_filtering: {filtering}\n"
            ),
        );
        site.write(
            "minion_conf/minion",
            &format!(
                "root_dir: {root}/minion\nid: native\nmaster: 127.0.0.1\nmaster_port: {ret_port}\n\
                 pki_dir: pki\nrecon_default: 50\nrecon_max: 200\nacceptance_wait_time: 1\n\
                 sign_pub_messages: True\nzmq_filtering: {filtering}\n"
            ),
        );
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("a file");
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command
            .arg("-c")
            .arg(self.path("conf"))
            .stdin(Stdio::null());
        command
    }

    async fn start_master(&mut self) {
        let output = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("master.out"))
            .expect("a file");
        let mut command = self.command("salt-master");
        command
            .stdout(output.try_clone().expect("a file"))
            .stderr(output);
        self.master = Some(
            command
                .process_group(0)
                .spawn()
                .expect("salt-master starts"),
        );
        let port = self.ret_port;
        until(|| TcpStream::connect(("127.0.0.1", port))).await;
    }

    async fn stop_master(&mut self) {
        if let Some(mut master) = self.master.take() {
            end_group(&master, Signal::TERM);
            if timeout(Duration::from_secs(20), master.wait())
                .await
                .is_err()
            {
                end_group(&master, Signal::KILL);
                master.wait().await.expect("it has ended");
            }
        }
    }

    async fn events(&self) -> EventListener {
        let sock_dir = self.path("sock");
        until(|| EventListener::connect(&sock_dir)).await
    }

    async fn wait_for(&self, events: &mut EventListener, tag: &str) {
        loop {
            let event = events
                .next()
                .await
                .expect("it can be read")
                .expect("the bus stays");
            if event.tag == tag {
                return;
            }
        }
    }

    fn client(&self) -> LocalClient {
        let loaded = saltern_config::load_master(&self.path("conf")).expect("it is valid");
        LocalClient::new(ClientConfig::from(&loaded.config))
    }

    /// Runs stock's `salt`; its exit code and what it wrote to standard output.
    async fn salt(&self, arguments: &[&str]) -> (i32, String) {
        let output = self
            .command("salt")
            .args(arguments)
            .output()
            .await
            .expect("salt runs");
        let text = String::from_utf8(output.stdout).expect("it is text");
        (output.status.code().expect("it was not killed"), text)
    }

    /// Asks the master for a new shared key, as `salt-key --rotate-aes-key` does.
    fn rotate_key(&self, version: &str) {
        let (new, name) = (self.path("cache/new-dropfile"), self.path("cache/.dfn"));
        let content = if version.starts_with("3006") {
            ""
        } else {
            "stock_master"
        };
        fs::write(&new, content).expect("a file");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o400)).expect("a mode");
        fs::rename(new, name).expect("the name is free");
    }

    /// Waits for the minion's connection to the publish port. That it is also subscribed shows
    /// nowhere; stock's command needs far longer to start than a subscription to arrive.
    async fn until_subscribed(&self) {
        let wanted = format!(":{:04X}", self.publish_port);
        until(async || {
            let table = fs::read_to_string("/proc/net/tcp").map_err(|_| ())?;
            let established = table.lines().any(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                matches!(fields[..], [_, _, remote, "01", ..] if remote.ends_with(&wanted))
            });
            established.then_some(()).ok_or(())
        })
        .await;
    }
}

impl Drop for Site {
    #[expect(clippy::print_stdout, reason = "shown only when the test fails")]
    fn drop(&mut self) {
        if let Some(master) = &self.master {
            end_group(master, Signal::KILL);
        }
        if std::thread::panicking() {
            let output = fs::read_to_string(self.path("master.out")).unwrap_or_default();
            println!("what the master wrote:\n{output}");
        }
    }
}

fn end_group(child: &Child, signal: Signal) {
    let group = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(group) = group {
        // It may have ended already.
        let _ = kill_process_group(group, signal);
    }
}

/// Two ports that were free a moment ago: stock cannot choose its ports itself. They lie below those that the
/// kernel gives to others, and those of `saltern_tests::port`.
fn free_ports() -> (u16, u16) {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 2_000;
    let start = std::process::id().wrapping_mul(7919);
    let ports = (0..COUNT).map(|offset| FIRST + start.wrapping_add(offset) % COUNT);
    let ports = ports.filter_map(|port| u16::try_from(port).ok());
    let mut free = ports.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let mut next = || free.next().expect("a free port");
    (next(), next())
}

/// Looks again until it succeeds: another program's readiness cannot be awaited.
async fn until<T, E>(mut look: impl AsyncFnMut() -> Result<T, E>) -> T {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(_) if Instant::now() < end => sleep(Duration::from_millis(20)).await,
            Err(_) => panic!("it did not become ready"),
        }
    }
}
