//! Files of git repositories: work that needs a process of git is not done by a worker.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;

use saltern_requests::handle;
use saltern_wire::msgpack::Value;

use crate::wire::client::{Load, Minion};
use crate::wire::site::Site;

pub(crate) fn git(directory: &Path, args: &[&str]) {
    let done = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@example.invalid"])
        .args(args)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git is needed for this test");
    assert!(done.status.success(), "git {args:?}");
}

/// Whether a request is answered by the worker itself; and the answer.
fn ask(site: &Site, minion: &Minion, load: Load) -> (bool, Value) {
    let payload = minion.sealed(load, 3);
    let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut outcome = handle(payload, from, &site.services).outcome;
    let (is_at_once, reply) = match outcome.later.take() {
        Some(later) => (false, later.run().reply),
        None => (true, outcome.reply),
    };
    (is_at_once, minion.open(&reply, 3))
}

#[test]
fn git_runs_beside_the_workers() {
    let site =
        Site::new("fileserver_backend: [roots, gitfs]\ngitfs_remotes: ['file://ROOT/repo']\n");
    let repository = site.path("repo");
    site.write("repo/a", "1\n");
    git(&repository, &["init", "--quiet", "--initial-branch=master"]);
    git(&repository, &["add", "a"]);
    git(&repository, &["commit", "--quiet", "--message=a change"]);
    assert!(site.services.content.files.refresh_remotes());
    let minion = Minion::signed_in(&site, "m1");
    let list = |saltenv: &str| minion.load("_file_list").set("saltenv", saltenv);
    let find = |path: &str, saltenv: &str| {
        let load = minion.load("_file_find").set("path", path);
        load.set("saltenv", saltenv)
    };
    let unknown = "0123456789abcdef";
    // The first time git is run, beside the workers; then never again.
    for (what, load) in [
        ("the tree of a branch", [list("base"), list("base")]),
        ("a file of it", [find("a", "base"), find("a", "base")]),
        ("the name of a commit", [list(unknown), list(unknown)]),
    ] {
        let [load, again] = load;
        let (is_at_once, first) = ask(&site, &minion, load);
        assert!(!is_at_once, "{what}");
        let (is_at_once, second) = ask(&site, &minion, again);
        assert!(is_at_once, "{what}, again");
        assert_eq!(first, second, "{what}");
    }
    for load in [
        minion.load("_file_envs"),
        find("b", "base"),
        find("a", unknown),
        list("none"),
        find("a", "none"),
    ] {
        assert!(ask(&site, &minion, load).0);
    }
}
