//! Tests of git remotes of which one never answers.

use std::fs::File;
use std::io::Read as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use rustix::fs::{FlockOperation, flock};
use saltern_wire::msgpack::Value;

use crate::site::{Listener, Site};
use crate::{in_system, until};

fn git(directory: &Path, args: &[&str]) {
    let done = Command::new("git")
        .args(args)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git is needed for this test");
    assert!(done.status.success(), "git {args:?}");
}

/// A repository with a branch `master` that has one empty commit.
fn repository(path: &Path) {
    std::fs::create_dir_all(path).unwrap();
    git(path, &["init", "--quiet", "--initial-branch=master"]);
    let commit = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.invalid",
        "commit",
        "--quiet",
        "--allow-empty",
        "--message=a change",
    ];
    git(path, &commit);
}

#[test]
fn silent_remote_delays_neither_others_nor_the_stop() {
    in_system(async {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let top = tempfile::tempdir().unwrap();
        repository(&top.path().join("healthy"));
        // More silent ones than the healthy one could wait for.
        let port = silent.local_addr().unwrap().port();
        let options = format!(
            "fileserver_backend: [gitfs]\ngitfs_remotes: ['git://127.0.0.1:{port}/a', \
             'git://127.0.0.1:{port}/b', 'file://{}']\n",
            top.path().join("healthy").display()
        );
        let site = Site::new(Box::leak(options.into_boxed_str()));
        let identity = site.minion("m1");
        let running = site.start();
        let mut minion = identity.sign_in(&running).await;
        let base = Value::Array(vec![Value::from("base")]);
        let fields = || vec![("cmd", Value::from("_file_envs"))];
        while minion.send(fields()).await.unwrap() != base {}
        // Both gits have asked, and wait.
        let accept = move || [(); 2].map(|()| silent.accept().unwrap().0);
        let asking = saltern_base::blocking::run(accept).await.unwrap();
        let (ended, is_over) = std::sync::mpsc::channel();
        let reading = std::thread::spawn(move || {
            for mut peer in asking {
                // Connected, and then closed by the other side; a killed git may reset it.
                let _ = peer.read_to_end(&mut Vec::new());
            }
            ended.send(()).unwrap();
        });
        running.master.shutdown().await;
        until(|| is_over.try_recv().is_ok()).await;
        reading.join().unwrap();
        // No lock is left that would keep the next master from its clones.
        let clones = std::fs::read_dir(site.path().join("cache/saltern/git/gitfs")).unwrap();
        let locks: Vec<File> = clones
            .map(|clone| File::open(clone.unwrap().path().join("lock")).unwrap())
            .collect();
        assert_eq!(locks.len(), 3);
        for lock in locks {
            flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        }
    });
}

#[test]
fn each_gitfs_fetch_is_announced_with_whether_it_changed_files() {
    in_system(async {
        let top = tempfile::tempdir().unwrap();
        let remote = top.path().join("remote");
        repository(&remote);
        let options = format!(
            "fileserver_backend: [gitfs]\ngitfs_remotes: ['file://{}']\nloop_interval: 1\n\
             gitfs_update_interval: 1\nfileserver_events: True\n",
            remote.display()
        );
        let site = Site::new(Box::leak(options.into_boxed_str()));
        let running = site.start();
        let mut events = Listener::connect(&site.socket("master_event_pub.ipc"))
            .await
            .unwrap();
        // The first fetch may have been announced before the listener connected.
        while next_update(&mut events).await {}
        git(&remote, &["branch", "another"]);
        while !next_update(&mut events).await {}
        running.master.shutdown().await;
    });
}

/// Whether the next event reports a change.
async fn next_update(events: &mut Listener) -> bool {
    let data = events.wait_for("salt/fileserver/gitfs/update").await;
    assert_eq!(data.get("backend").and_then(Value::as_str), Some("gitfs"));
    data.get("changed").and_then(Value::as_bool).unwrap()
}
