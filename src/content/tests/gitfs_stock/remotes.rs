//! What happens to remotes: fetches, changes, what is refused.

use std::fs;
use std::path::Path;

use saltern_base::clock::Clock;
use saltern_content::files::FileServer;
use saltern_wire::msgpack::Value;

use super::repository::{Repository, What};
use super::{configure, list, load, server};

/// A master with one remote that is always fetched anew.
fn one_remote(top: &Path) -> (Repository, FileServer) {
    let repository = Repository::new(top.join("repository"));
    repository.commit(
        "master",
        &[("a", What::File("1\n")), ("b", What::File("2\n"))],
    );
    let config = format!(
        "fileserver_backend: [gitfs]\ngitfs_update_interval: 0\ngitfs_remotes: ['{}']\n",
        repository.url()
    );
    let server = server(&configure(&top.join("master"), &config));
    (repository, server)
}

fn content(server: &FileServer, path: &str) -> Option<Vec<u8>> {
    let data = server.read(path, "base", 1 << 20).unwrap();
    data.map(|data| data.to_vec())
}

fn files(server: &FileServer, saltenv: &str) -> Value {
    list(server.file_list(saltenv, "")).unwrap()
}

fn names(names: &[&str]) -> Value {
    Value::Array(names.iter().map(|name| Value::from(*name)).collect())
}

#[test]
fn changes_are_served_after_the_next_refresh_and_not_before() {
    let top = tempfile::tempdir().unwrap();
    let (repository, server) = one_remote(top.path());
    assert_eq!(server.file_envs(), names(&[]), "a request does not fetch");
    assert!(server.refresh_remotes());
    assert!(!server.refresh_remotes(), "nothing has changed");
    assert_eq!(content(&server, "a").unwrap(), b"1\n");
    let dropped = [("a", What::File("new\n")), ("b", What::Gone)];
    repository.commit("master", &dropped);
    repository.commit("dev", &[("c", What::File("3\n"))]);
    assert_eq!(content(&server, "a").unwrap(), b"1\n");
    assert!(server.refresh_remotes());
    assert_eq!(content(&server, "a").unwrap(), b"new\n");
    assert_eq!(content(&server, "b"), None);
    assert_eq!(server.file_envs(), names(&["base", "dev"]));
    assert_eq!(files(&server, "dev"), names(&["a", "c"]));
    // A branch that is deleted, and one that is rewritten.
    repository.git(&["checkout", "--quiet", "--detach"]);
    repository.git(&["branch", "--delete", "--force", "dev"]);
    repository.git(&["branch", "--force", "master", "master~1"]);
    assert!(server.refresh_remotes());
    assert_eq!(server.file_envs(), names(&["base"]));
    assert_eq!(files(&server, "dev"), names(&[]));
    assert_eq!(content(&server, "a").unwrap(), b"1\n");
}

#[test]
fn a_remote_that_is_gone_is_served_on() {
    let top = tempfile::tempdir().unwrap();
    let (repository, server) = one_remote(top.path());
    assert!(server.refresh_remotes());
    fs::rename(&repository.path, top.path().join("elsewhere")).unwrap();
    assert!(!server.refresh_remotes());
    assert_eq!(content(&server, "a").unwrap(), b"1\n");
    // The next master has what this one fetched.
    let conf = top.path().join("master/master");
    let next = super::server(&conf);
    assert_eq!(content(&next, "a").unwrap(), b"1\n");
}

#[test]
fn what_a_killed_git_left_behind_does_not_matter() {
    let top = tempfile::tempdir().unwrap();
    let (repository, server) = one_remote(top.path());
    assert!(server.refresh_remotes());
    let clones = top.path().join("master/cache/saltern/git/gitfs");
    let clone = fs::read_dir(clones)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    for lock in [
        "packed-refs.lock",
        "refs/remotes/origin/master.lock",
        "config.lock",
    ] {
        fs::write(clone.join("repository").join(lock), "").unwrap();
    }
    repository.commit("master", &[("a", What::File("new\n"))]);
    assert!(server.refresh_remotes());
    assert_eq!(content(&server, "a").unwrap(), b"new\n");
}

#[test]
fn two_masters_do_not_fetch_into_one_clone_at_once() {
    let top = tempfile::tempdir().unwrap();
    let (repository, server) = one_remote(top.path());
    assert!(server.refresh_remotes());
    let clones = top.path().join("master/cache/saltern/git/gitfs");
    let clone = fs::read_dir(clones)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let lock = fs::File::open(clone.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    repository.commit("master", &[("a", What::File("new\n"))]);
    assert!(!server.refresh_remotes(), "the other has the lock");
    drop(lock);
    assert!(server.refresh_remotes());
}

#[test]
fn nothing_in_the_cache_is_open_to_others_or_holds_a_url() {
    use std::os::unix::fs::PermissionsExt as _;
    let top = tempfile::tempdir().unwrap();
    let (repository, server) = one_remote(top.path());
    assert!(server.refresh_remotes());
    assert!(content(&server, "a").is_some());
    let clones = top.path().join("master/cache/saltern/git");
    assert_eq!(clones.metadata().unwrap().permissions().mode() & 0o077, 0);
    let clone = fs::read_dir(clones.join("gitfs"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let config = fs::read_to_string(clone.path().join("repository/config")).unwrap();
    assert!(!config.contains(&repository.url()), "{config}");
}

#[test]
fn files_that_no_ref_names_any_more_are_removed() {
    let top = tempfile::tempdir().unwrap();
    let (repository, server) = one_remote(top.path());
    assert!(server.refresh_remotes());
    assert!(content(&server, "a").is_some() && content(&server, "b").is_some());
    let clones = top.path().join("master/cache/saltern/git/gitfs");
    let clone = fs::read_dir(clones)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let stored = || {
        let directories = fs::read_dir(clone.join("files")).unwrap();
        let files = directories.map(|entry| fs::read_dir(entry.unwrap().path()).unwrap().count());
        files.sum::<usize>()
    };
    assert_eq!(stored(), 2);
    repository.commit("master", &[("a", What::File("new\n"))]);
    assert!(server.refresh_remotes());
    assert!(content(&server, "a").is_some());
    repository.commit("master", &[("c", What::File("3\n"))]);
    assert!(server.refresh_remotes());
    assert!(stored() <= 2, "{}", stored());
}

#[test]
fn remotes_that_cannot_work_are_refused_by_name() {
    let top = tempfile::tempdir().unwrap();
    for (remotes, named) in [
        ("['ext::sh -c id']", "gitfs_remotes"),
        ("['fd::7']", "gitfs_remotes"),
        ("['ftp://a/b']", "gitfs_remotes"),
        ("['--upload-pack=id']", "gitfs_remotes"),
        ("['file:///a', 'file:///a']", "gitfs_remotes"),
        ("[{'file:///a': [{unknown: 1}]}]", "\"unknown\""),
        ("[{'file:///a': {root: x}}]", "gitfs_remotes"),
        ("[{'file:///a': [{ref_types: [x]}]}]", "gitfs_ref_types"),
        (
            "[{'file:///a': [{refspecs: ['a:refs/heads/a']}]}]",
            "gitfs_refspecs",
        ),
        ("[{'ssh://a@b/c': [{privkey: /none}]}]", "gitfs_privkey"),
        (
            "[{'ssh://a@b/c': [{privkey: /etc/passwd}, {passphrase: x}]}]",
            "gitfs_passphrase",
        ),
        (
            "[{'http://a/b': [{user: u}, {password: hidden}]}]",
            "gitfs_insecure_auth",
        ),
        ("[{'https://a/b': [{user: u}]}]", "gitfs_password"),
    ] {
        let config = format!("fileserver_backend: [gitfs]\ngitfs_remotes: {remotes}\n");
        let config = load(&configure(top.path(), &config));
        let error = FileServer::new(&config, Clock::system()).err();
        let error = error.expect(remotes).to_string();
        assert!(error.contains(named), "{remotes}: {error}");
        assert!(!error.contains("hidden"), "{error}");
    }
}
