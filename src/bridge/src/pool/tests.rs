//! Helpers here are shell scripts that speak just enough of the protocol, so that each can
//! misbehave in its own way. The program itself is in `tests/program.rs`, Salt in
//! `tests/e2e/bridge.rs`.

mod program;

use std::fs::{self, File};
use std::io::Write as _;
use std::sync::mpsc;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags};
use saltern_config::load_master;
use tempfile::TempDir;

use super::*;
use crate::helper::{EXIT_GRACE, opening};
use crate::{Call, Subject, testing};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(300);

/// Answers of a helper in shell, as `printf` writes them.
const UP: &str = r"printf '\000\000\000\006\201\242up\241x'";
const OK: &str = r"printf '\000\000\000\005\201\242ok\303'";
/// Waits for a request.
const READ: &str = "head -c {request} >/dev/null";

/// A bridge whose Python is a shell script that has read what every helper is given first; `{top}`
/// in it is a directory of the test, `{request}` the length of the request of [`ask`].
fn bridge(script: &str, options: &str) -> (TempDir, Bridge) {
    let top = tempfile::tempdir().expect("a directory");
    let conf = top.path().join("master");
    let root = top.path().display();
    let text = match options.contains("python_bridge:") {
        true => format!("root_dir: {root}\n{options}\n"),
        false => format!("root_dir: {root}\npython_bridge: {root}/python3\n{options}\n"),
    };
    fs::write(&conf, text).expect("it can be written");
    let loaded = load_master(top.path());
    let config = loaded.unwrap_or_else(|errors| panic!("{errors}")).config;
    let bridge = Bridge::new(&config);
    let first = opening(Lane::Pillar.forks(), &bridge.settings).expect("it fits");
    let request = question(|work| work.pack()).expect("it fits");
    let script = script.replace("{request}", &request.len().to_string());
    let start = format!("head -c {} >/dev/null", first.len());
    let probe = "case \"$3\" in *find_spec*) exit 0;; esac";
    install(&top, &format!("{probe}\n{start}\n{script}"));
    (top, bridge)
}

/// Makes a shell script the Python of the bridge; `{top}` in it is the directory.
fn install(top: &TempDir, script: &str) {
    let script = script.replace("{top}", &top.path().display().to_string());
    testing::install(&top.path().join("python3"), &script);
}

/// The one question of these tests. Its length is the same each time: tokens of this few
/// compilations take one byte.
fn question<T>(ask: impl FnOnce(&Work<'_>) -> T) -> T {
    let subject = Subject::new("m1", Value::Nil.into(), Value::Nil.into());
    ask(&Work::Has {
        subject: &subject,
        name: "custom.fun",
    })
}

fn ask(bridge: &Bridge, within: Duration) -> Result<Value, BridgeError> {
    question(|work| bridge.call(work, within))
}

/// A log-in of somebody.
const LOG_IN: Work<'_> = Work::LogIn {
    eauth: "custom",
    username: "fred",
    password: "secret",
};

/// Reads a log-in.
fn read_log_in() -> String {
    let request = LOG_IN.pack().expect("it fits");
    format!("head -c {} >/dev/null", request.len())
}

fn lines(top: &TempDir, name: &str) -> usize {
    fs::read_to_string(top.path().join(name)).map_or(0, |text| text.lines().count())
}

/// A pipe with a name, `{top}/<name>` to a helper, which never waits when it opens that.
struct Named {
    held: File,
    path: PathBuf,
}

impl Named {
    fn new(top: &TempDir, name: &str) -> Self {
        let path = top.path().join(name);
        rustix::fs::mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).expect("it is new");
        // Opening a FIFO for both directions does not block.
        let held = File::options().read(true).write(true).open(&path);
        Self {
            held: held.expect("it is there"),
            path,
        }
    }

    /// Waits until something was written into it.
    fn wait(&self) {
        happens(&self.held, PollFlags::IN);
    }

    /// Waits until no other process has it open.
    fn wait_for_its_end(self) {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let end = rustix::fs::open(&self.path, flags, Mode::empty()).expect("it is there");
        drop(self.held);
        happens(&end, PollFlags::HUP);
    }
}

fn happens(on: &impl std::os::fd::AsFd, what: PollFlags) {
    let within = rustix::event::Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    let mut polled = [PollFd::new(on, what)];
    let ready = poll(&mut polled, Some(&within)).expect("it can be polled");
    assert_eq!(ready, 1, "it did not happen within a minute");
}

#[test]
fn a_helper_serves_one_call_after_the_other() {
    let script = format!("echo >>{{top}}/starts; {UP}; while :; do {READ}; {OK}; done");
    let (top, bridge) = bridge(&script, "");
    for _ in 0..3 {
        assert_eq!(ask(&bridge, LONG), Ok(Value::Bool(true)));
    }
    assert_eq!(lines(&top, "starts"), 1);
}

#[test]
fn dead_helper_fails_its_own_call_only() {
    // The first one dies when it is asked, the next ones answer.
    let script = format!(
        "echo >>{{top}}/starts; {UP}; {READ}; \
         test -e {{top}}/died || {{ : >{{top}}/died; echo oops >&2; kill -9 $$; }}; \
         {OK}; cat >/dev/null"
    );
    let (top, bridge) = bridge(&script, "");
    let error = ask(&bridge, LONG).expect_err("it dies");
    assert_eq!(
        error.to_string(),
        "the Python helper that ran the function \"custom.fun\" was ended by signal 9: oops"
    );
    assert_eq!(ask(&bridge, LONG), Ok(Value::Bool(true)));
    assert_eq!(lines(&top, "starts"), 2);
}

#[test]
fn hung_helper_is_killed_with_its_children_at_the_deadline() {
    // The child holds the pipe for as long as it lives.
    let script = format!("{UP}; exec 3>{{top}}/held; sleep 600 & {READ}; {OK}; wait");
    let (top, bridge) = bridge(&script, "");
    let held = Named::new(&top, "held");
    assert_eq!(ask(&bridge, LONG), Ok(Value::Bool(true)));
    let error = ask(&bridge, SHORT).expect_err("it hangs");
    assert!(matches!(error, BridgeError::Timeout { .. }), "{error}");
    held.wait_for_its_end();
}

#[test]
fn unsolicited_answer_of_a_helper_fails_the_next_call() {
    let script = format!("{UP}; {READ}; {OK}; {OK}; echo >{{top}}/said; {READ}; {OK}");
    let (top, bridge) = bridge(&script, "");
    let said = Named::new(&top, "said");
    assert_eq!(ask(&bridge, LONG), Ok(Value::Bool(true)));
    said.wait();
    // Without the check this would be taken for the answer to a later call.
    let error = ask(&bridge, LONG)
        .expect_err("it spoke unasked")
        .to_string();
    assert!(error.contains("unasked"), "{error}");
}

#[test]
fn frame_with_an_oversized_length_is_refused() {
    let script = format!(r"{UP}; {READ}; printf '\377\377\377\377'; cat >/dev/null");
    let (_top, bridge) = bridge(&script, "");
    let error = ask(&bridge, LONG).expect_err("it lies").to_string();
    assert!(error.contains("announces 4294967295 bytes"), "{error}");
}

#[test]
fn helper_that_fails_to_start_is_not_restarted_within_the_back_off() {
    let script = "echo >>{top}/starts; printf '\\001ESalt is broken\\n' >&2; exit 3";
    let (top, bridge) = bridge(script, "");
    for _ in 0..20 {
        let error = ask(&bridge, LONG).expect_err("it does not come up");
        assert_eq!(
            error.to_string(),
            "the function \"custom.fun\" cannot be run: the Python helper (option \
             \"python_bridge\") ended with code 3: Salt is broken"
        );
    }
    // A pause may be over before the next question on a busy machine; the seventh takes six seconds.
    let starts = lines(&top, "starts");
    assert!(starts < 8, "{starts} starts");
}

#[test]
fn helpers_that_die_often_open_the_circuit_breaker() {
    let script = format!("echo >>{{top}}/starts; {UP}; {READ}; exit 1");
    let (top, bridge) = bridge(&script, "");
    for _ in 0..MAX_DEATHS {
        let error = ask(&bridge, LONG).expect_err("it dies");
        assert!(matches!(error, BridgeError::Died { .. }), "{error}");
    }
    let error = ask(&bridge, LONG).expect_err("it is given up");
    assert!(matches!(error, BridgeError::NoHelper { .. }), "{error}");
    assert_eq!(lines(&top, "starts"), MAX_DEATHS);
}

#[test]
fn waiting_calls_have_their_own_deadline_and_end_on_stop() {
    let script = format!("{UP}; echo >{{top}}/up; sleep 600");
    let (top, bridge) = bridge(&script, "python_bridge_processes: 1");
    let up = Named::new(&top, "up");
    let (say, said) = mpsc::channel();
    thread::scope(|scope| {
        let bridge = &bridge;
        scope.spawn(move || say.send(ask(bridge, LONG)).expect("the test listens"));
        up.wait();
        // The only helper is taken.
        let error = ask(bridge, SHORT).expect_err("it waits in vain");
        assert!(matches!(error, BridgeError::Timeout { .. }), "{error}");
        bridge.stop();
        let error = said.recv().expect("it ends").expect_err("it was ended");
        assert!(matches!(error, BridgeError::Stopped { .. }), "{error}");
    });
    let error = ask(&bridge, LONG).expect_err("it is over");
    assert!(matches!(error, BridgeError::Stopped { .. }), "{error}");
}

#[test]
fn runner_lane_has_helpers_of_its_own() {
    let script = format!("{UP}; {READ}; {OK}; cat >/dev/null");
    let (_top, bridge) = bridge(&script, "");
    bridge.stop_runs();
    let call = Call {
        fun: "state.orchestrate".to_owned(),
        positional: Vec::new(),
        named: Vec::new(),
        jid: "20200101000000000000".to_owned(),
        tag: "salt/run/20200101000000000000".to_owned(),
        user: "root".to_owned(),
    };
    let error = bridge.call(&Work::Runner(&call), LONG);
    assert!(
        matches!(error, Err(BridgeError::Stopped { .. })),
        "{error:?}"
    );
    assert_eq!(ask(&bridge, LONG), Ok(Value::Bool(true)));
}

#[test]
fn login_helpers_are_retired_on_reload() {
    let read = read_log_in();
    let script = format!("echo >>{{top}}/starts; {UP}; while :; do {read}; {OK}; done");
    let (top, bridge) = bridge(&script, "");
    for starts in 1..=2 {
        for _ in 0..2 {
            assert_eq!(bridge.call(&LOG_IN, LONG), Ok(Value::Bool(true)));
        }
        assert_eq!(lines(&top, "starts"), starts);
        bridge.retire_log_ins();
    }
}

#[test]
fn busy_helper_is_retired_after_its_answer() {
    let read = read_log_in();
    let work = format!("{read}; echo >{{top}}/asked; read line <{{top}}/go; {OK}");
    let script = format!("echo >>{{top}}/starts; {UP}; while :; do {work}; done");
    let (top, bridge) = bridge(&script, "");
    let (asked, go) = (Named::new(&top, "asked"), Named::new(&top, "go"));
    thread::scope(|scope| {
        let first = scope.spawn(|| bridge.call(&LOG_IN, LONG));
        asked.wait();
        bridge.retire_log_ins();
        (&go.held).write_all(b"1\n2\n").expect("there is room");
        assert_eq!(first.join().expect("no panic"), Ok(Value::Bool(true)));
    });
    assert_eq!(bridge.call(&LOG_IN, LONG), Ok(Value::Bool(true)));
    assert_eq!(lines(&top, "starts"), 2);
}

#[test]
fn search_for_a_python_outlives_the_call_that_began_it() {
    let (top, bridge) = bridge("", "");
    let answer = "echo >>{top}/starts; echo >{top}/asked; read line <{top}/go; exit 0";
    install(&top, answer);
    let (asked, go) = (Named::new(&top, "asked"), Named::new(&top, "go"));
    for _ in 0..2 {
        let error = ask(&bridge, SHORT).expect_err("it waits in vain");
        assert!(matches!(error, BridgeError::Timeout { .. }), "{error}");
    }
    asked.wait();
    (&go.held).write_all(b"1\n").expect("there is room");
    assert_eq!(bridge.python(), Ok(top.path().join("python3")));
    assert_eq!(lines(&top, "starts"), 1);
}

#[test]
fn stop_ends_a_helper_that_closed_its_pipes_and_goes_on() {
    let close = "exec 3>{top}/held 0<&- 1>&- 2>&-; echo >{top}/closed; exec sleep 600";
    let script = format!("{UP}; {READ}; {close}");
    let (top, bridge) = bridge(&script, "");
    let (held, closed) = (Named::new(&top, "held"), Named::new(&top, "closed"));
    thread::scope(|scope| {
        let call = scope.spawn(|| ask(&bridge, LONG));
        let began = Instant::now();
        closed.wait();
        bridge.stop();
        let error = call.join().expect("no panic").expect_err("it was ended");
        // On a busy machine its grace may be over before the stop.
        let is_late = matches!(error, BridgeError::Died { .. }) && began.elapsed() >= EXIT_GRACE;
        let is_ended = matches!(error, BridgeError::Stopped { .. }) || is_late;
        assert!(is_ended, "{error}");
    });
    held.wait_for_its_end();
}

#[test]
fn missing_installation_error_names_the_function_and_the_option() {
    let (_top, bridge) = bridge("", "python_bridge: false");
    assert_eq!(
        ask(&bridge, LONG).expect_err("it is off").to_string(),
        "the function \"custom.fun\" can only be run by Python, and the option \"python_bridge\" \
         is off"
    );
}
