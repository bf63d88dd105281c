//! Attacks of minions on the file server, and their results.
//!
//! Everything that must stay hidden has the text `secret` in it, so that no answer may hold that
//! text; and nothing may be written outside of the directory of the minion that pushes.
//!
//! Longer than 500 lines because it is a list: one test an attack.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use saltern_base::clock::Clock;
use saltern_config::load_master;
use saltern_content::files::path::{MAX_PATH_BYTES, Refusal};
use saltern_content::files::{FileServer, FilesError};
use saltern_model::MinionId;
use saltern_wire::msgpack::{Limits, Value, decode};

struct Site {
    top: tempfile::TempDir,
}

impl Site {
    /// A master's directory with a secret beside everything that is served.
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let at = top.path();
        for directory in [
            "salt/dir",
            "any/dev",
            "etc",
            "cache/minions/web1/files/etc",
            "cache/minions/web2/files",
        ] {
            fs::create_dir_all(at.join(directory)).unwrap();
        }
        fs::write(at.join("secret"), "secret").unwrap();
        fs::write(at.join("etc/shadow"), "secret").unwrap();
        fs::write(at.join("cache/minions/web1/secret"), "secret").unwrap();
        fs::write(at.join("salt/file"), "file").unwrap();
        fs::write(at.join("any/dev/file"), "dev").unwrap();
        fs::write(at.join("cache/minions/web1/files/etc/hosts"), "hosts").unwrap();
        Self { top }
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.top.path().join(path)
    }

    fn server(&self, options: &str) -> FileServer {
        self.try_server(options, Clock::system()).unwrap()
    }

    fn try_server(&self, options: &str, clock: Clock) -> Result<FileServer, FilesError> {
        let at = self.top.path().to_str().unwrap();
        let text = format!(
            "root_dir: {at}\ncachedir: {at}/cache\npki_dir: {at}/pki\nsock_dir: {at}/run\n{}",
            options.replace("{top}", at)
        );
        let conf = self.at("master");
        fs::write(&conf, text).unwrap();
        let loaded = load_master(&conf).unwrap_or_else(|_| panic!("no good: {options}"));
        FileServer::new(&loaded.config, clock)
    }
}

/// Asks for a path in every way there is.
fn everything(server: &FileServer, path: &str, saltenv: &str) -> Vec<Result<Value, FilesError>> {
    let list = |packed: Result<bytes::Bytes, FilesError>| {
        packed.map(|packed| decode(&packed, &Limits::WIRE).unwrap())
    };
    vec![
        server.file_find(path, saltenv),
        server.file_hash(path, saltenv),
        server.file_hash_and_stat(path, saltenv),
        server.serve_file(path, saltenv, 0, None),
        server.serve_file(path, saltenv, 0, Some(9)),
        list(server.file_list(saltenv, path)),
        list(server.file_list_emptydirs(saltenv, path)),
        list(server.dir_list(saltenv, path)),
        server.symlink_list(saltenv, path),
    ]
}

fn assert_gets_nothing(server: &FileServer, path: &str, saltenv: &str) {
    let shown: String = path.chars().take(60).collect();
    for answer in everything(server, path, saltenv) {
        let answer = format!("{answer:?}");
        assert!(!answer.contains("secret"), "{shown} in {saltenv}: {answer}");
    }
    assert_eq!(
        server.file_find(path, saltenv).unwrap().get("path"),
        Some(&"".into()),
        "{shown}"
    );
    assert_eq!(
        server.file_hash(path, saltenv).unwrap(),
        Value::from(""),
        "{shown}"
    );
}

const BOTH: &str = "fileserver_backend: [roots, minionfs]\nfile_recv: True\nfile_roots:\n  base: \
                    ['{top}/salt']\n  __env__: ['{top}/any/__env__']\n";

#[test]
fn no_path_leaves_its_root() {
    let site = Site::new();
    let top = site.top.path().to_str().unwrap().to_owned();
    let long = "a/".repeat(MAX_PATH_BYTES);
    let deep = format!("{}secret", "dir/../".repeat(400));
    let name = "n".repeat(5_000);
    let attacks = [
        ("..", Some(Refusal::Outside)),
        ("../secret", Some(Refusal::Outside)),
        ("dir/../../secret", Some(Refusal::Outside)),
        ("dir/../..", Some(Refusal::Outside)),
        ("./../secret", Some(Refusal::Outside)),
        ("|../secret", Some(Refusal::Outside)),
        ("../secret?saltenv=base", Some(Refusal::Outside)),
        ("..?index=0", Some(Refusal::Outside)),
        ("../secret?index=0", Some(Refusal::Outside)),
        (&format!("{top}/secret"), Some(Refusal::Absolute)),
        ("/etc/shadow", Some(Refusal::Absolute)),
        ("//etc/shadow", Some(Refusal::Absolute)),
        ("|/etc/shadow", Some(Refusal::Absolute)),
        ("file\0", Some(Refusal::Nul)),
        ("file\0/../../secret", Some(Refusal::Outside)),
        ("secret?path=/etc/shadow", Some(Refusal::Query)),
        ("x?saltenv=../etc", Some(Refusal::Environment)),
        ("shadow?saltenv=../etc", Some(Refusal::Environment)),
        ("secret?saltenv=..", Some(Refusal::Environment)),
        ("secret?saltenv=dev/../..", Some(Refusal::Environment)),
        (&long, Some(Refusal::TooLong)),
        (&name, Some(Refusal::TooLong)),
        (&deep, Some(Refusal::Outside)),
        // Things that only look like a way up.
        ("..\\secret", None),
        ("\u{ff0e}\u{ff0e}/secret", None),
        ("\u{2025}/secret", None),
        ("%2e%2e/secret", None),
        ("..%2fsecret", None),
        (".\u{200b}./secret", None),
        ("\u{2215}etc\u{2215}shadow", None),
        ("file/../file/x", Some(Refusal::Outside)),
        ("salt://../secret", Some(Refusal::Outside)),
        ("file:///etc/shadow", None),
        // Into and out of the files of a minion.
        ("web1/../web1/secret", Some(Refusal::Outside)),
        ("web1//etc/shadow", None),
        (&format!("web1/{top}/secret"), None),
        ("web1/..", None),
        ("../minions/web1/secret", Some(Refusal::Outside)),
        ("..//web1/etc/hosts", Some(Refusal::Outside)),
    ];
    for follow in ["True", "False"] {
        let server = site.server(&format!("{BOTH}fileserver_followsymlinks: {follow}\n"));
        for (path, refusal) in &attacks {
            for saltenv in ["base", "dev"] {
                assert_gets_nothing(&server, path, saltenv);
            }
            assert_eq!(FileServer::refusal(path, "base"), *refusal, "{path:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_random_path_reads_outside_the_roots(
        parts in proptest::collection::vec(
            prop_oneof![
                Just(".."), Just("."), Just(""), Just("dir"), Just("file"), Just("web1"),
                Just("etc"), Just("shadow"), Just("secret"), Just("files"), Just("|"),
                Just("?saltenv="), Just("?index=0"), Just("salt:"), Just("\0"), Just("\u{2024}."),
            ],
            0..8,
        ),
        env in prop_oneof![Just("base"), Just("dev"), Just(".."), Just("../etc"), Just("/")],
    ) {
        static SITE: LazyLock<Site> = LazyLock::new(Site::new);
        static SERVER: LazyLock<FileServer> = LazyLock::new(|| SITE.server(BOTH));
        let path = parts.join("/");
        let found = SERVER.file_find(&path, env).unwrap();
        let found = found.get("path").and_then(Value::as_str).unwrap().to_owned();
        prop_assert!(found.is_empty() || !fs::read(&found).unwrap().starts_with(b"secret"));
        for answer in everything(&SERVER, &path, env).into_iter().skip(1) {
            prop_assert!(!format!("{answer:?}").contains("secret"), "{} in {}", path, env);
        }
    }
}

#[test]
fn no_environment_leaves_its_root() {
    let site = Site::new();
    let server = site.server(BOTH);
    assert_ne!(server.file_hash("file", "dev").unwrap(), Value::from(""));
    let long = "e".repeat(300);
    for saltenv in [
        "..",
        "../etc",
        "dev/../../etc",
        "/etc",
        "",
        ".",
        "dev/",
        "dev\0",
        &long,
    ] {
        for path in ["shadow", "secret", "etc/shadow", "file"] {
            assert_gets_nothing(&server, path, saltenv);
        }
        assert_eq!(
            FileServer::refusal("file", saltenv),
            Some(Refusal::Environment)
        );
    }
}

#[test]
fn links_out_of_a_root_lead_nowhere_unless_they_may() {
    let site = Site::new();
    symlink("../secret", site.at("salt/up")).unwrap();
    symlink(site.at("secret"), site.at("salt/absolute")).unwrap();
    symlink("../etc", site.at("salt/etc")).unwrap();
    symlink("dir/../../etc", site.at("salt/round")).unwrap();
    symlink("/proc/self/cwd", site.at("salt/magic")).unwrap();
    symlink(site.at("secret"), site.at("cache/minions/web1/files/link")).unwrap();
    symlink(site.at("etc"), site.at("cache/minions/web1/files/up")).unwrap();
    let strict = site.server(&format!("{BOTH}fileserver_followsymlinks: False\n"));
    for path in [
        "up",
        "absolute",
        "etc/shadow",
        "round/shadow",
        "magic/Cargo.toml",
    ] {
        assert_eq!(
            strict.file_find(path, "base").unwrap().get("path"),
            Some(&"".into()),
            "{path}"
        );
        let indexed = format!("{path}?index=0");
        assert_eq!(
            strict.file_find(&indexed, "base").unwrap().get("path"),
            Some(&"".into()),
            "{path}"
        );
    }
    let free = site.server(BOTH);
    for path in ["up", "absolute", "etc/shadow", "round/shadow"] {
        assert_ne!(
            free.file_hash(path, "base").unwrap(),
            Value::from(""),
            "{path}"
        );
    }
    // A link below a root must not expose this process.
    assert_gets_nothing(&free, "magic/Cargo.toml", "base");
    // What minions push is never followed.
    for path in ["web1/link", "web1/up/shadow"] {
        assert_gets_nothing(&free, path, "base");
    }
}

#[test]
fn only_regular_files_are_opened() {
    let site = Site::new();
    let pipe = site.at("salt/pipe");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, 0o666.into(), 0).unwrap();
    symlink("/dev/zero", site.at("salt/zero")).unwrap();
    symlink("/dev/tty", site.at("salt/tty")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(site.at("salt/socket")).unwrap();
    let server = site.server(BOTH);
    for path in ["pipe", "zero", "tty", "socket", "dir"] {
        assert_gets_nothing(&server, path, "base");
    }
}

#[test]
fn cp_push_stays_in_its_directory() {
    let site = Site::new();
    let own = site.at("cache/minions/web2/files");
    symlink(site.at("secret"), own.join("link")).unwrap();
    symlink(site.at("etc"), own.join("up")).unwrap();
    symlink(site.at("new"), own.join("dangling")).unwrap();
    fs::create_dir(own.join("dir")).unwrap();
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, own.join("pipe"), kind, 0o666.into(), 0).unwrap();
    let server = site.server(BOTH);
    let minion = MinionId::parse("web2").unwrap();
    let long = "n".repeat(300);
    let deep = vec!["d"; 200];
    for parts in [
        &["..", "data.p"][..],
        &["..", "..", "web1", "files", "x"],
        &["a", "..", "..", "x"],
        &["a/../../x"],
        &["../"],
        &["/etc/x"],
        &["", "etc", "x"],
        &["a\0b"],
        &["."],
        &[""],
        &[],
        &[&long],
        &deep,
        &["link"],
        &["up", "shadow"],
        &["dangling"],
        &["dir"],
        &["pipe"],
    ] {
        for (loc, data) in [
            (0, &b"evil"[..]),
            (3, b"evil"),
            (-1, b"evil"),
            (i64::MAX, b"evil"),
        ] {
            let written = server.receive(&minion, parts, loc, data);
            assert!(!matches!(written, Ok(true)), "{parts:?} at {loc}");
        }
    }
    assert_eq!(fs::read(site.at("secret")).unwrap(), b"secret");
    assert_eq!(fs::read(site.at("etc/shadow")).unwrap(), b"secret");
    assert!(!site.at("new").exists());
    assert!(!holds(site.top.path(), b"evil"), "something was written");
    assert!(server.receive(&minion, &["ok"], 0, b"evil").unwrap());
    assert!(holds(site.top.path(), b"evil"));
}

/// Whether any file below holds the bytes.
fn holds(directory: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(directory).unwrap().any(|entry| {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        let is_holder = kind.is_file()
            && fs::read(entry.path())
                .unwrap()
                .windows(bytes.len())
                .any(|window| window == bytes);
        is_holder || (kind.is_dir() && holds(&entry.path(), bytes))
    })
}

#[test]
fn cp_push_is_refused_unless_configured() {
    let site = Site::new();
    let server = site.server("file_roots: {base: ['{top}/salt']}\n");
    let minion = MinionId::parse("web2").unwrap();
    assert!(!server.receive(&minion, &["x"], 0, b"x").unwrap());
    assert!(!site.at("cache/minions/web2/files/x").exists());
}

#[test]
fn repeated_chunk_of_a_push_is_written_once() {
    let site = Site::new();
    let server = site.server(BOTH);
    let minion = MinionId::parse("web2").unwrap();
    for (loc, data) in [(0, b"one"), (3, b"two"), (3, b"two"), (6, b"six")] {
        assert!(server.receive(&minion, &["file"], loc, data).unwrap());
    }
    let file = site.at("cache/minions/web2/files/file");
    assert_eq!(fs::read(file).unwrap(), b"onetwosix");
}

#[test]
fn names_that_are_not_utf8_are_omitted_and_link_loops_end() {
    use std::os::unix::ffi::OsStrExt;
    let site = Site::new();
    let name = std::ffi::OsStr::from_bytes(b"salt/bad\xff");
    fs::write(site.top.path().join(name), "x").unwrap();
    symlink(".", site.at("salt/self")).unwrap();
    symlink("..", site.at("salt/dir/up")).unwrap();
    let server = site.server("file_roots: {base: ['{top}/salt']}\n");
    let names = |packed: Result<bytes::Bytes, FilesError>| {
        decode(&packed.unwrap(), &Limits::WIRE)
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(server.file_list("base", "")), ["file"]);
    assert_eq!(
        names(server.dir_list("base", "")),
        ["dir", "dir/up", "self"]
    );
    assert!(names(server.file_list_emptydirs("base", "")).is_empty());
}

#[test]
fn changed_file_is_listed_after_the_list_cache_time() {
    let site = Site::new();
    // Long after the files were written, so that their directories count as settled.
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000));
    let options = "file_roots: {base: ['{top}/salt']}\n";
    let server = site.try_server(options, clock.clone()).unwrap();
    let count = || {
        let packed = server.file_list("base", "").unwrap();
        decode(&packed, &Limits::WIRE)
            .unwrap()
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(count(), 1);
    fs::write(site.at("salt/dir/new"), "new").unwrap();
    clock.advance(Duration::from_secs(19));
    assert_eq!(count(), 1);
    // But it is served at once.
    assert_ne!(
        server.file_hash("dir/new", "base").unwrap(),
        Value::from("")
    );
    clock.advance(Duration::from_secs(1));
    assert_eq!(count(), 2);
    fs::remove_file(site.at("salt/dir/new")).unwrap();
    clock.advance(Duration::from_secs(20));
    assert_eq!(count(), 1);
}

#[test]
fn lists_are_refreshed_ahead_of_requests() {
    let site = Site::new();
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000));
    let options = "file_roots: {base: ['{top}/salt'], other: ['{top}/none']}\n";
    let server = site.try_server(options, clock.clone()).unwrap();
    server.refresh_lists().unwrap();
    fs::remove_file(site.at("salt/file")).unwrap();
    // What was made ahead keeps no request from seeing what is there now.
    assert_eq!(server.file_list("base", "").unwrap().as_ref(), b"\x90");
    fs::write(site.at("salt/file"), "again").unwrap();
    server.refresh_lists().unwrap();
    // Nor does it end the time for which an answer is kept.
    assert_eq!(server.file_list("base", "").unwrap().as_ref(), b"\x90");
    clock.advance(Duration::from_secs(20));
    assert_eq!(
        server.file_list("base", "").unwrap().as_ref(),
        b"\x91\xa4file"
    );
}

#[test]
fn many_workers_may_ask_while_the_tree_changes() {
    let site = Site::new();
    let server = site.server(&format!("{BOTH}fileserver_list_cache_time: 0\n"));
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (server, site) = (&server, &site);
            scope.spawn(move || {
                for round in 0..50 {
                    let path = format!("dir/{worker}-{round}");
                    fs::write(site.at(&format!("salt/{path}")), &path).unwrap();
                    let served = server.serve_file(&path, "base", 0, None).unwrap();
                    let data = served.get("data").and_then(Value::as_bytes);
                    assert_eq!(data, Some(path.as_bytes()));
                    assert_ne!(server.file_hash(&path, "base").unwrap(), Value::from(""));
                    let list = server.file_list("base", &path).unwrap();
                    let list = decode(&list, &Limits::WIRE).unwrap();
                    let is_listed = list.as_array().unwrap().contains(&path.as_str().into());
                    assert!(is_listed, "{path}");
                    fs::remove_file(site.at(&format!("salt/{path}"))).unwrap();
                }
            });
        }
    });
    assert_eq!(server.file_list("base", "dir").unwrap().as_ref(), b"\x90");
}

#[test]
fn options_that_cannot_work_are_named() {
    let site = Site::new();
    for (options, named) in [
        ("fileserver_backend: [roots, hgfs]\n", "\"hgfs\""),
        ("fileserver_backend: [hgfs]\n", "fileserver_backend"),
        ("file_buffer_size: 0\n", "file_buffer_size"),
        ("file_buffer_size: -1\n", "file_buffer_size"),
        ("file_roots: {base: [[nested]]}\n", "file_roots"),
    ] {
        let error = site.try_server(options, Clock::system()).err();
        let text = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains(named), "{options}: {text:?}");
    }
}

#[test]
fn files_are_read_whole_up_to_a_limit() {
    let site = Site::new();
    let server = site.server(BOTH);
    assert_eq!(
        server.read("file", "base", 4).unwrap().as_deref(),
        Some(&b"file"[..])
    );
    assert_eq!(server.read("none", "base", 4).unwrap(), None);
    assert!(server.read("file", "base", 3).is_err());
}
