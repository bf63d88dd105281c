//! Changes of remotes: fetches, commits, refusals.

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
fn unreachable_remote_is_still_served() {
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
fn stale_lock_files_of_a_killed_git_are_removed() {
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
fn clone_lock_excludes_a_second_master() {
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
fn git_cache_is_private_and_holds_no_url() {
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
fn first_change_after_a_restart_keeps_cached_files() {
    let top = tempfile::tempdir().unwrap();
    let (repository, server) = one_remote(top.path());
    assert!(server.refresh_remotes());
    assert!(content(&server, "a").is_some() && content(&server, "b").is_some());
    // The directory of the first master stays; the next one starts with what it finds.
    let next = super::server(&top.path().join("master/master"));
    repository.commit("master", &[("a", What::File("new\n"))]);
    assert!(next.refresh_remotes());
    assert!(files(&next, "base") == names(&["a", "b"]));
    assert!(next.finds_at_once("b", "base"), "its file is still there");
    assert!(!next.finds_at_once("a", "base"), "a new one must be taken");
    assert_eq!(content(&next, "a").unwrap(), b"new\n");
    assert!(next.finds_at_once("a", "base"));
}

#[test]
fn commits_as_environments_are_bounded_and_do_not_evict_branches() {
    let top = tempfile::tempdir().unwrap();
    let (repository, server) = one_remote(top.path());
    let commits: Vec<String> = (0..40).map(|_| repository.commit("master", &[])).collect();
    repository.commit("dev", &[]);
    assert!(server.refresh_remotes());
    for saltenv in ["base", "dev"] {
        assert!(!server.lists_at_once(saltenv), "it has to be listed first");
        assert_eq!(files(&server, saltenv), names(&["a", "b"]));
    }
    for commit in &commits {
        assert!(!server.lists_at_once(commit), "{commit}");
        assert_eq!(files(&server, commit), names(&["a", "b"]));
        assert!(server.lists_at_once(commit), "{commit}");
    }
    assert!(server.lists_at_once("base") && server.lists_at_once("dev"));
    // Names that are made up: only so many are looked up.
    let made_up = |at: usize| format!("{at:040x}");
    let looked_at = (0..1000).filter(|at| {
        let is_resolved = !server.lists_at_once(&made_up(*at));
        assert_eq!(files(&server, &made_up(*at)), names(&[]));
        assert!(
            server.lists_at_once(&made_up(*at)),
            "it is known to be nothing"
        );
        is_resolved
    });
    assert_eq!(looked_at.count() + commits.len(), 256);
    assert!(server.lists_at_once("base") && server.lists_at_once("dev"));
    // The next fetch may bring them.
    assert!(!server.refresh_remotes());
    assert!(!server.lists_at_once(&made_up(999)));
}

#[test]
fn unfinished_files_of_a_killed_master_are_removed() {
    let top = tempfile::tempdir().unwrap();
    let (_repository, server) = one_remote(top.path());
    assert!(server.refresh_remotes());
    assert!(content(&server, "a").is_some());
    drop(server);
    let clones = top.path().join("master/cache/saltern/git/gitfs");
    let clone = fs::read_dir(clones)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let blobs = fs::read_dir(clone.join("files")).unwrap().next().unwrap();
    let leftovers = [
        blobs.unwrap().path().join("new.1.0"),
        clone.join("trees/new.1.0"),
        clone.join("trees/old.new.1.0"),
    ];
    fs::create_dir_all(&leftovers[1]).unwrap();
    fs::create_dir_all(&leftovers[2]).unwrap();
    fs::write(&leftovers[0], "").unwrap();
    let next = super::server(&top.path().join("master/master"));
    for leftover in leftovers {
        assert!(!leftover.exists(), "{}", leftover.display());
    }
    assert_eq!(content(&next, "a").unwrap(), b"1\n");
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
