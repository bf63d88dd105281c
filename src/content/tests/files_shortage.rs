//! Without file descriptors no backend says that a file is not there: a minion would take that for
//! the truth, and a state would remove what it manages.
//!
//! One test, because the limit is the whole process's.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use saltern_base::clock::Clock;
use saltern_config::load_master;
use saltern_content::files::{FileServer, FilesError};
use saltern_wire::msgpack::Value;

fn server(top: &Path, backend: &str, options: &str) -> FileServer {
    let at = top.to_str().unwrap();
    let text = format!(
        "root_dir: {at}\ncachedir: {at}/{backend}\nfileserver_backend: [{backend}]\n{options}"
    );
    fs::write(top.join("master"), text).unwrap();
    let loaded = load_master(&top.join("master"));
    let config = loaded.unwrap_or_else(|errors| panic!("{errors}")).config;
    FileServer::new(&config, Clock::system()).unwrap()
}

fn git(repository: &Path, arguments: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@t", "-C"])
        .arg(repository)
        .args(arguments)
        .output()
        .unwrap();
    assert!(done.status.success(), "git {arguments:?}: {done:?}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// Sets the soft limit so that the next descriptor is one too many.
fn without_descriptors<T>(work: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Nofile);
    let next = fs::File::open("/dev/null").unwrap().as_raw_fd();
    let current = Some(u64::try_from(next).unwrap());
    setrlimit(Resource::Nofile, Rlimit { current, ..before }).unwrap();
    let done = work();
    setrlimit(Resource::Nofile, before).unwrap();
    done
}

/// Asks in each way, without descriptors and then with them.
fn check(what: &str, server: &FileServer, path: &str, saltenv: &str) {
    let is_fault = |result: Result<Value, FilesError>| match result {
        Err(error) => error.is_local_fault(),
        Ok(_) => false,
    };
    let faults = without_descriptors(|| {
        [
            is_fault(server.file_find(path, saltenv)),
            is_fault(server.file_hash(path, saltenv)),
            is_fault(server.file_hash_and_stat(path, saltenv)),
            is_fault(server.serve_file(path, saltenv, 0, None)),
            server
                .file_list(saltenv, "")
                .is_err_and(|error| error.is_local_fault()),
        ]
    });
    assert_eq!(faults, [true; 5], "{what}: no truth is known");
    let found = server.file_find(path, saltenv).unwrap();
    assert_eq!(found.get("rel"), Some(&path.into()), "{what}: it is there");
    let absent = server.file_find("none/absent", saltenv).unwrap();
    assert_eq!(
        absent.get("rel"),
        Some(&"".into()),
        "{what}: and that is not"
    );
}

#[test]
fn file_that_cannot_be_looked_for_is_not_said_to_be_absent() {
    let top = tempfile::tempdir().unwrap();
    let at = top.path();
    fs::create_dir_all(at.join("srv")).unwrap();
    fs::write(at.join("srv/file"), "file").unwrap();
    let roots = format!("file_roots: {{base: [{}]}}\n", at.join("srv").display());
    check("roots", &server(at, "roots", &roots), "file", "base");

    let pushed = at.join("minionfs/minions/web1/files");
    fs::create_dir_all(&pushed).unwrap();
    fs::write(pushed.join("file"), "pushed").unwrap();
    let minionfs = server(at, "minionfs", "file_recv: True\n");
    check("minionfs", &minionfs, "web1/file", "base");

    let repository = at.join("repository");
    fs::create_dir_all(&repository).unwrap();
    git(&repository, &["init", "-q", "-b", "master"]);
    fs::write(repository.join("file"), "committed").unwrap();
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "-q", "-m", "one"]);
    let commit = git(&repository, &["rev-parse", "HEAD"]);
    let remotes = format!("gitfs_remotes: ['file://{}']\n", repository.display());
    for (what, saltenv) in [
        ("gitfs, branch", "base"),
        ("gitfs, commit", commit.as_str()),
    ] {
        // A fresh one: what it has seen once it knows without a process of git.
        let gitfs = server(at, "gitfs", &remotes);
        assert!(gitfs.refresh_remotes() || saltenv != "base");
        check(what, &gitfs, "file", saltenv);
    }
}
