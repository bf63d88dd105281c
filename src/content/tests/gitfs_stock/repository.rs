//! Git repositories that the tests make.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Entry of a commit's tree.
pub(crate) enum What {
    File(&'static str),
    Program(&'static str),
    Link(&'static str),
    Gone,
}

/// A repository with a work tree.
pub(crate) struct Repository {
    pub(crate) path: PathBuf,
}

impl Repository {
    pub(crate) fn new(path: PathBuf) -> Self {
        fs::create_dir_all(&path).unwrap();
        let repository = Self { path };
        repository.git(&["init", "--quiet", "--initial-branch=master"]);
        repository
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.path.display())
    }

    /// Calls git, without the configuration of the user that runs the test, and gives what it
    /// prints.
    pub(crate) fn git(&self, args: &[&str]) -> String {
        let done = Command::new("git")
            .args(args)
            .current_dir(&self.path)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "a")
            .env("GIT_AUTHOR_EMAIL", "a@example.invalid")
            .env("GIT_COMMITTER_NAME", "a")
            .env("GIT_COMMITTER_EMAIL", "a@example.invalid")
            .env("GIT_AUTHOR_DATE", "2024-01-01T00:00:00Z")
            .env("GIT_COMMITTER_DATE", "2024-01-01T00:00:00Z")
            .stderr(Stdio::inherit())
            .output()
            .expect("git is needed for this test");
        assert!(done.status.success(), "git {args:?}");
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    /// Commits these changes to a branch, which is made from the current one if it is new.
    pub(crate) fn commit(&self, branch: &str, files: &[(&str, What)]) -> String {
        let current = self.git(&["symbolic-ref", "--short", "HEAD"]);
        if current != branch {
            let branches = self.git(&["branch", "--list", branch]);
            if branches.is_empty() {
                self.git(&["checkout", "--quiet", "-b", branch]);
            } else {
                self.git(&["checkout", "--quiet", branch]);
            }
        }
        for (path, what) in files {
            write(&self.path.join(path), what);
        }
        self.git(&["add", "--all"]);
        self.git(&[
            "commit",
            "--quiet",
            "--allow-empty",
            "--message",
            "a change",
        ]);
        self.git(&["rev-parse", "HEAD"])
    }
}

fn write(path: &Path, what: &What) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match what {
        What::File(content) => fs::write(path, content).unwrap(),
        What::Program(content) => {
            fs::write(path, content).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        What::Link(target) => symlink(target, path).unwrap(),
        What::Gone => fs::remove_file(path).unwrap(),
    }
}
