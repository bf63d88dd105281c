//! Events written by the layer, to a file and to a journal of the test's own.

use std::os::unix::net::UnixDatagram;

use serde_json::Value as Json;

use super::*;
use saltern_actors::control::LogLevels as _;

/// A layer that writes to `master` in a directory, and what it goes by.
fn log(directory: &Path, format: LogFormat, journal: Option<Journal>) -> (Log, Arc<Levels>) {
    let options = LogOptions {
        file: directory.join("master").display().to_string(),
        format,
        console_line: "%(message)s".to_owned(),
        file_line: "[%(levelname)-8s]%(jid)s %(message)s".to_owned(),
        console_date: String::new(),
        file_date: String::new(),
        jid: "[JID: %(jid)s]".to_owned(),
        rotate_at: 0,
        rotated_files: 0,
    };
    let form = || match format {
        LogFormat::Json => Form::Json,
        LogFormat::Text => Form::Text(PythonFormat::new(&options.file_line, "", &options.jid)),
    };
    let levels = LevelOptions {
        level: LogLevel::Warning,
        file_level: LogLevel::Info,
        granular_levels: Vec::new(),
    };
    let levels = Arc::new(Levels::new(&levels, None));
    let file = LogFile::open(Path::new(&options.file), 0, 0).unwrap();
    let log = Log {
        levels: levels.clone(),
        clock: Clock::manual(std::time::UNIX_EPOCH),
        repeats: Repeats::default(),
        file_failures: LogThrottle::new(LOG_INTERVAL),
        journal,
        console: form(),
        file: Some((form(), file)),
    };
    (log, levels)
}

fn written(directory: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(directory.join("master")).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn json_line_is_one_object_with_its_fields() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = log(directory.path(), LogFormat::Json, None);
    tracing::subscriber::with_default(Registry::default().with(log), || {
        let evil = "a\n{\"level\":\"ERROR\"}\u{1b}";
        tracing::info!(jid = "2026", minion = %evil, returns = 3, late = true, "returned");
        tracing::info!(level = "mine", "of {}", "one");
    });
    let lines: Vec<Json> = written(directory.path())
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let expected = serde_json::json!({
        "time": "1970-01-01T00:00:00.000000Z",
        "level": "INFO",
        "target": module_path!(),
        "message": "returned",
        "jid": "2026",
        "minion": "a\n{\"level\":\"ERROR\"}\u{1b}",
        "returns": 3,
        "late": true,
    });
    assert_eq!(lines[0], expected);
    assert_eq!(lines[1]["field_level"], "mine");
    assert_eq!(lines.len(), 2);
}

#[test]
fn text_line_shows_its_jid_as_configured() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = log(directory.path(), LogFormat::Text, None);
    tracing::subscriber::with_default(Registry::default().with(log), || {
        tracing::info!(jid = "2026", "begun");
        tracing::info!("ready");
    });
    assert_eq!(
        written(directory.path()),
        ["[INFO    ][JID: 2026] begun jid=2026", "[INFO    ] ready"]
    );
}

#[test]
fn a_message_with_text_from_outside_stays_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = log(directory.path(), LogFormat::Text, None);
    tracing::subscriber::with_default(Registry::default().with(log), || {
        tracing::info!("failed: {}", "a\n[CRITICAL] \u{1b}[31m\u{61c}");
        tracing::info!("failed: {}", "ü".repeat(5000));
        tracing::error!(frames = "+0x1 +0x2", place = "x.rs:1", "panic: no");
    });
    let lines = written(directory.path());
    let [evil, long, panic] = lines.as_slice() else {
        panic!("too few lines");
    };
    assert_eq!(evil, r"[INFO    ] failed: a\n[CRITICAL] \u{1b}[31m\u{61c}");
    assert!(long.ends_with("ü… (1824 bytes more)"), "{long}");
    assert_eq!(panic, "[ERROR   ] panic: no frames=+0x1 +0x2 place=x.rs:1");
}

#[test]
fn levels_change_while_it_runs() {
    let directory = tempfile::tempdir().unwrap();
    let (log, levels) = log(directory.path(), LogFormat::Text, None);
    let say = || tracing::debug!("detail");
    tracing::subscriber::with_default(Registry::default().with(log), || {
        say();
        levels.set(LogLevel::Debug, Some(module_path!())).unwrap();
        say();
        levels.reset();
        say();
        levels.set(LogLevel::Debug, None).unwrap();
        say();
    });
    assert_eq!(written(directory.path()).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn lines_of_one_place_are_throttled_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = log(directory.path(), LogFormat::Text, None);
    let subscriber = tracing::subscriber::set_default(Registry::default().with(log));
    let storm = || tracing::info!("again");
    for _ in 0..1000 {
        storm();
    }
    tracing::info!("something else");
    tokio::time::advance(std::time::Duration::from_secs(10)).await;
    storm();
    drop(subscriber);
    let lines = written(directory.path());
    let [.., other, last] = lines.as_slice() else {
        panic!("too few lines");
    };
    assert!(other.ends_with("something else"), "{other}");
    assert!(last.ends_with("again left_out=800"), "{last}");
    assert_eq!(lines.len(), 202);
}

#[test]
fn the_journal_gets_the_console_s_lines_with_their_fields() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let end = UnixDatagram::bind(&path).unwrap();
    end.set_nonblocking(true).unwrap();
    let journal = Journal::connect(&path).unwrap();
    let (log, _) = log(directory.path(), LogFormat::Text, Some(journal));
    tracing::subscriber::with_default(Registry::default().with(log), || {
        tracing::info!("only in the file");
        tracing::warn!(jid = "2026", "odd");
    });
    let mut buffer = [0; 4096];
    let length = end.recv(&mut buffer).unwrap();
    let datagram = String::from_utf8_lossy(&buffer[..length]);
    for entry in [
        "odd jid=2026\n",
        "\u{1}\0\0\0\0\0\0\x004\n",
        "SALTERN_JID\n",
        "SYSLOG_IDENTIFIER\n",
    ] {
        assert!(datagram.contains(entry), "{entry:?} in {datagram:?}");
    }
    assert!(end.recv(&mut buffer).is_err(), "one line, one datagram");
    assert_eq!(written(directory.path()).len(), 2);
}
