//! Loading real files: what is read, what is refused, and what the messages say.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests; a failure shows where"
)]

use std::fs;
use std::path::Path;
use std::time::Duration;

use saltern_config::{ConfigErrors, Loaded, Severity, load_master, render_findings};
use saltern_model::Compat;

/// Writes `master` and further files into a directory and loads it. `DIR` in a text is replaced by
/// the directory.
fn load(files: &[(&str, &str)]) -> (tempfile::TempDir, Result<Loaded, ConfigErrors>) {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap().to_owned();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.replace("DIR", &place)).unwrap();
    }
    let loaded = load_master(dir.path());
    (dir, loaded)
}

const BASE: &str = "root_dir: DIR/root\nid: m\n";

fn loaded(text: &str) -> Loaded {
    let (_dir, result) = load(&[("master", &format!("{BASE}{text}"))]);
    result.map_err(|errors| errors.to_string()).unwrap()
}

/// The errors as "line option: message".
fn errors(text: &str) -> Vec<String> {
    let (_dir, result) = load(&[("master", &format!("{BASE}{text}"))]);
    let Err(errors) = result else {
        panic!("the configuration was accepted: {text}");
    };
    let lines = errors
        .errors()
        .map(|f| format!("{} {}: {}", f.line, f.option, f.message));
    lines.collect()
}

#[test]
fn an_ordinary_file_gives_an_ordinary_master() {
    let text = "interface: 127.0.0.1\npublish_port: 14505\nret_port: \"14506\"\ntimeout: 7\n\
                worker_threads: 2\nsalt_compat: 3007.15\nauto_accept: True\n";
    let Loaded { config, findings } = loaded(text);
    assert_eq!(config.salt_compat, Compat::V3007);
    assert_eq!(config.interface.to_string(), "127.0.0.1");
    assert_eq!((config.publish_port, config.ret_port), (14505, 14506));
    assert_eq!(config.timeout, Duration::from_secs(7));
    assert_eq!(config.worker_threads, 2);
    assert!(
        config.pki_dir.ends_with("root/etc/salt/pki/master"),
        "{:?}",
        config.pki_dir
    );
    assert_eq!(config.id, "m");
    assert!(config.auto_accept);
    let severities: Vec<_> = findings
        .iter()
        .map(|f| (f.severity, f.option.as_str()))
        .collect();
    assert_eq!(severities, [(Severity::Warning, "auto_accept")]);
}

#[test]
fn every_mistake_is_named_with_its_line() {
    let text = "publish_port: 99999\nret_port: abc\nsign_pub_messages: maybe\n\
                interface: example.com\nlog_level: loud\nkeysize: 2048\nexternal_auth: {}\n";
    assert_eq!(
        errors(text),
        [
            "3 publish_port: 99999 is not a whole number from 1 to 65535",
            "4 ret_port: \"abc\" is not a whole number from 1 to 65535",
            "5 sign_pub_messages: \"maybe\" is not true or false",
            "6 interface: \"example.com\" is not an IP address of this host, such as 0.0.0.0, \
             192.0.2.1 or \"::\"",
            "7 log_level: \"loud\" is not one of all, garbage, trace, debug, profile, info, \
             warning, error, critical, quiet",
        ]
    );
}

#[test]
fn an_unknown_name_is_a_warning_with_the_nearest_one() {
    let findings = loaded("worker_thread: 3\nour_site_data: {a: 1}\n").findings;
    let shown: Vec<String> = findings
        .iter()
        .filter(|f| f.severity == Severity::Warning)
        .map(|f| format!("{} {:?}", f.line, f.suggestion))
        .collect();
    assert_eq!(
        shown,
        ["3 Some(\"did you mean \\\"worker_threads\\\"?\")", "4 None"]
    );
    let text = render_findings(&findings);
    assert!(
        text.contains("master:3: worker_thread: no such option"),
        "{text}"
    );
    assert!(text.ends_with("0 errors, 2 warnings, 0 hints\n"), "{text}");
}

#[test]
fn what_is_not_built_is_said() {
    let findings = loaded("reactor: [a]\ncython_enable: true\nnodegroups: {}\n").findings;
    let shown: Vec<String> = findings
        .iter()
        .map(|f| format!("{:?} {} {}", f.severity, f.option, f.message))
        .collect();
    assert_eq!(
        shown,
        [
            "Warning reactor not honoured yet: reactor, engines and schedule is not built",
            "Info cython_enable has no effect: no Python runs here",
        ]
    );
}

#[test]
fn a_missing_directory_and_a_broken_file_are_told_apart() {
    let missing = load_master(Path::new("/nowhere/at/all")).err().unwrap();
    assert!(missing.unreadable);
    let (_dir, broken) = load(&[("master", "a: [1\nb: 2\n")]);
    let broken = broken.err().unwrap();
    assert!(!broken.unreadable);
    assert!(broken.errors().next().unwrap().line > 0, "{broken}");
}
