//! Tokens: good until their time is up and no longer, gone with their file, private, and the same
//! to stock's own code in all three lines.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use saltern_base::clock::Clock;
use saltern_model::Compat;
use saltern_store::{Claims, Tokens};
use saltern_wire::msgpack::{Dialect, Value, encode};

const START: u64 = 1_795_000_000;
const LASTS: Duration = Duration::from_secs(60);

fn clock() -> Clock {
    Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(START))
}

fn claims() -> Claims {
    Claims {
        name: "ana".to_owned(),
        eauth: "pam".to_owned(),
        groups: vec!["ops".to_owned()],
        auth_list: Some(Value::Array(vec!["test.*".into()])),
        lasts: LASTS,
    }
}

fn mode(path: &Path) -> u32 {
    let meta = std::fs::metadata(path).expect("it is there");
    meta.permissions().mode() & 0o7777
}

fn only_file(dir: &Path) -> PathBuf {
    let mut entries = std::fs::read_dir(dir).expect("a directory");
    let entry = entries.next().expect("one file").expect("readable");
    assert!(entries.next().is_none(), "one file");
    entry.path()
}

#[test]
fn a_token_is_good_until_its_time_is_up() {
    for compat in [Compat::V3006, Compat::V3007, Compat::V3008] {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("tokens");
        let clock = clock();
        let tokens = Tokens::at(&dir, compat, clock.clone()).expect("it opens");
        assert_eq!(mode(&dir), 0o700);
        let made = tokens.create(claims()).expect("a token");
        let name = made.to_value().get("token").and_then(Value::as_str);
        let name = name.expect("it has a name").to_owned();
        assert_eq!(name.len(), 64);
        let file = only_file(&dir);
        assert_eq!(mode(&file), 0o600);
        let suffix = if compat == Compat::V3008 { ".p" } else { "" };
        let shown = file.file_name().and_then(|name| name.to_str());
        assert_eq!(shown, Some(format!("{name}{suffix}").as_str()));
        assert_eq!(tokens.list().expect("a list"), [name.as_str()]);

        let step = Duration::from_micros(1);
        clock.advance(LASTS - step);
        let found = tokens.find(&name).expect("readable").expect("still good");
        assert_eq!((found.name(), found.eauth()), ("ana", "pam"));
        assert_eq!(found.groups(), ["ops"]);
        assert!(found.auth_list().is_some());
        assert!(file.exists());
        // Once more at the very end of its life: CVE-2021-3144 was one more use.
        clock.advance(step);
        assert!(
            tokens.find(&name).expect("readable").is_none(),
            "{compat:?}"
        );
        assert!(!file.exists(), "what has expired is removed");
    }
}

#[test]
fn a_token_without_its_file_is_none_and_other_names_reach_no_file() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("tokens");
    let tokens = Tokens::at(&dir, Compat::V3006, clock()).expect("it opens");
    let made = tokens.create(claims()).expect("a token");
    let name = made.to_value().get("token").and_then(Value::as_str);
    let name = name.expect("it has a name");
    assert!(tokens.remove(name).expect("removed"));
    assert!(tokens.find(name).expect("readable").is_none());
    assert!(!tokens.remove(name).expect("none"));

    let packed = encode(
        &Value::map([
            ("name", Value::from("ana")),
            ("eauth", "pam".into()),
            ("expire", Value::Float(f64::MAX)),
        ]),
        Dialect::Bin,
    );
    for place in ["abc", "tokens/not-hex", "tokens/.abc"] {
        std::fs::write(root.path().join(place), &packed).expect("written");
    }
    let long = "a".repeat(129);
    for name in [
        "", ".", "..", "../abc", "not-hex", ".abc", "abc\0", "a/b", &long,
    ] {
        assert!(tokens.find(name).expect("no error").is_none(), "{name:?}");
        assert!(!tokens.remove(name).expect("no error"), "{name:?}");
    }
    for place in ["abc", "tokens/not-hex", "tokens/.abc"] {
        assert!(root.path().join(place).exists(), "{place} is untouched");
    }
}

#[test]
fn damaged_or_unbounded_token_is_refused_and_removed() {
    let table: [(&str, Value); 5] = [
        ("a text", "x".into()),
        ("no end", Value::map([("name", "ana")])),
        (
            "an end that is text",
            Value::map([("expire", "9999999999")]),
        ),
        (
            "an end that is no number",
            Value::map([("expire", Value::Float(f64::NAN))]),
        ),
        (
            "an envelope that has expired",
            Value::map([
                ("data", Value::map([("expire", Value::Float(f64::MAX))])),
                ("_expires", Value::Int(START as i64)),
            ]),
        ),
    ];
    let root = tempfile::tempdir().expect("a directory");
    let tokens = Tokens::at(root.path(), Compat::V3008, clock()).expect("it opens");
    let path = root.path().join("abcd.p");
    for (what, content) in table {
        std::fs::write(&path, encode(&content, Dialect::Bin)).expect("written");
        assert!(tokens.find("abcd").expect("readable").is_none(), "{what}");
        assert!(!path.exists(), "{what}");
    }
    std::fs::write(&path, b"\xc1").expect("written");
    assert!(tokens.find("abcd").expect("readable").is_none());
}

#[test]
fn sweep_removes_only_expired_tokens() {
    let root = tempfile::tempdir().expect("a directory");
    let clock = clock();
    let tokens = Tokens::at(root.path(), Compat::V3008, clock.clone()).expect("it opens");
    let short = Claims {
        lasts: Duration::from_secs(1),
        ..claims()
    };
    for _ in 0..3 {
        tokens.create(short.clone()).expect("a token");
    }
    tokens.create(claims()).expect("a token");
    assert_eq!(tokens.sweep().expect("listed"), 0);
    clock.advance(Duration::from_secs(1));
    assert_eq!(tokens.sweep().expect("listed"), 3);
    assert_eq!(tokens.list().expect("listed").len(), 1);
}

/// Stock's master of this line, in its own words.
fn stock(version: &str, cache: &Path, script: &str) -> serde_json::Value {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let python = PathBuf::from(home).join(format!(".cache/saltern/stock/{version}/bin/python"));
    assert!(
        python.exists(),
        "\"{}\" does not exist: this test compares with stock Salt {version}",
        python.display()
    );
    let program = format!(
        "import json, os, salt.config, salt.auth\n\
         os.umask(0o022)\n\
         opts = dict(salt.config.DEFAULT_MASTER_OPTS)\n\
         opts.update(cachedir={cache:?}, token_dir={dir:?}, conf_file='/dev/null',\n\
             external_auth={{'auto': {{'ana': ['test.*']}}}}, extension_modules='')\n\
         auth = salt.auth.LoadAuth(opts)\n\
         {script}\nprint(json.dumps(answer))\n",
        cache = cache.display().to_string(),
        dir = cache.join("tokens").display().to_string(),
    );
    let output = Command::new(python)
        .args(["-W", "ignore", "-c", &program])
        .output()
        .expect("stock's python starts");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{script}\n{out}\n{err}");
    serde_json::from_str(out.lines().last().unwrap_or_default()).expect("one JSON value")
}

#[test]
fn stock_reads_our_tokens_and_we_read_stocks() {
    let lines = [
        ("3006.28", Compat::V3006),
        ("3007.15", Compat::V3007),
        ("3008.3", Compat::V3008),
    ];
    for (version, compat) in lines {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("tokens");
        let tokens = Tokens::at(&dir, compat, Clock::system()).expect("it opens");
        let ours = tokens
            .create(Claims {
                eauth: "auto".to_owned(),
                lasts: Duration::from_secs(3600),
                ..claims()
            })
            .expect("a token");
        let name = ours.to_value().get("token").and_then(Value::as_str);
        let name = name.expect("it has a name");
        let script = format!(
            "seen = auth.authenticate_token({{'token': {name:?}}})\n\
             listed = list(auth.list_tokens())\n\
             made = auth.mk_token({{'eauth': 'auto', 'username': 'ana', 'password': 'x'}})\n\
             answer = [seen, listed, made]"
        );
        let answer = stock(version, root.path(), &script);
        assert_eq!(answer[0]["name"], "ana", "{version}: {answer}");
        assert_eq!(answer[0]["groups"][0], "ops", "{version}");
        let made = answer[2]["token"].as_str().expect("stock made a token");
        assert_eq!(answer[1][0], name, "{version}");
        let found = tokens.find(made).expect("readable").expect("good");
        assert_eq!((found.name(), found.eauth()), ("ana", "auto"), "{version}");
        let mut listed = tokens.list().expect("listed");
        listed.sort();
        let mut both = [made.to_owned(), name.to_owned()];
        both.sort();
        assert_eq!(listed, both, "{version}");
    }
}
