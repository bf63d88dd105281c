//! Lenient loading of the configuration for tools beside a master. A tool may run where no master
//! would start: on a read-only disk, as another user, or with a mistake in a file.
//!
//! While it is certain which master is meant, a tool uses the default in place of each invalid
//! value.

use std::path::Path;

use crate::finding::{ConfigErrors, Finding, Severity};
use crate::master::{Loaded, Reading, read_with};

/// Options that say which master is meant: with one left out, a tool might ask another one.
const WHICH_MASTER: &[&str] = &[
    "cachedir",
    "default_include",
    "include",
    "interface",
    "publish_port",
    "ret_port",
    "root_dir",
    "saltern_also_listen",
    "saltern_cluster",
    "saltern_job_database",
    "sock_dir",
    "transport",
    "user",
];

/// Options whose errors are about what the process that reads them may do: of another process they
/// say nothing.
const OF_PROCESS: &[&str] = &[
    "cachedir",
    "key_logfile",
    "log_file",
    "pidfile",
    "pki_dir",
    "saltern_job_database",
    "sock_dir",
    "user",
];

/// [`crate::load_master`] for a tool: the findings may hold errors. `path` is the file, or the
/// directory that has a file `master`.
///
/// # Errors
/// [`ConfigErrors`] when the main file cannot be understood so far that it is certain which master is
/// meant.
pub fn load_for_tools(path: &Path) -> Result<Loaded, ConfigErrors> {
    load_for_user(path, None)
}

/// The same for a command of stock's: the options of `client_file`, a file of the calling user
/// (`~/.saltrc`), replace all others.
///
/// # Errors
/// As [`load_for_tools`].
pub fn load_for_user(path: &Path, client_file: Option<&Path>) -> Result<Loaded, ConfigErrors> {
    let reading = read_with(path, client_file);
    let main = reading.config.conf_file.display().to_string();
    let is_fatal = |finding: &Finding| {
        let is_left_out = !reading.config.is_written(&finding.option);
        let is_unknown = match finding.option.as_str() {
            "" => finding.file == main,
            option => is_left_out && finding.line > 0 && WHICH_MASTER.contains(&option),
        };
        finding.severity == Severity::Error && is_unknown
    };
    let is_unusable = reading.findings.iter().any(is_fatal);
    let Reading {
        config,
        findings,
        unreadable,
    } = reading;
    match is_unusable {
        true => Err(ConfigErrors {
            findings,
            unreadable,
        }),
        false => Ok(Loaded { config, findings }),
    }
}

/// Whether a finding is about what the process that read the configuration may do, as opposed to
/// what the files say.
#[must_use]
pub fn is_of_process(finding: &Finding) -> bool {
    OF_PROCESS.contains(&finding.option.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_master;

    fn with(main: &str, included: &str) -> (tempfile::TempDir, Result<Loaded, ConfigErrors>) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("master"), main).unwrap();
        std::fs::create_dir(dir.path().join("master.d")).unwrap();
        std::fs::write(dir.path().join("master.d/a.conf"), included).unwrap();
        let loaded = load_for_tools(dir.path());
        let no_start = load_master(dir.path());
        assert!(
            no_start.is_err(),
            "a master starts with {main:?} {included:?}"
        );
        (dir, loaded)
    }

    #[test]
    fn mistake_within_an_option_leaves_the_others() {
        for (main, included) in [
            ("sock_dir: /run/x\ntimeout: [1\nret_port: 5506\n", ""),
            (
                "sock_dir: /run/x\nnodegroups:\n  a: 'b\n  c: d\nret_port: 5506\n",
                "",
            ),
            (
                "sock_dir: /run/x\nnodegroups:\n\ta: b\n# c: d\nret_port: 5506\n",
                "",
            ),
            ("sock_dir: /run/x\ntimeout: soon\nret_port: 5506\n", ""),
            ("sock_dir: /run/x\nret_port: 5506\n", "timeout: {1\n"),
            ("sock_dir: /run/x\nret_port: 5506\n", "- no mapping\n"),
        ] {
            let (_dir, loaded) = with(main, included);
            let config = loaded.map_err(|errors| errors.to_string()).unwrap().config;
            assert_eq!(config.sock_dir, Path::new("/run/x"), "{main:?}");
            assert_eq!(config.ret_port, 5506, "{main:?}");
        }
    }

    #[test]
    fn options_of_the_user_replace_those_of_the_master() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("master"), "timeout: 5\nret_port: 5506\n").unwrap();
        let own = dir.path().join("saltrc");
        std::fs::write(&own, "timeout: 9\noutput: json\n").unwrap();
        let config = load_for_user(dir.path(), Some(&own)).unwrap().config;
        assert_eq!((config.timeout.as_secs(), config.ret_port), (9, 5506));
        let output = config.command_default("output");
        assert_eq!(output.and_then(|node| node.as_str()), Some("json"));
    }

    #[test]
    fn unknown_master_is_not_guessed() {
        for main in [
            "sock_dir: [/run/x\nret_port: 5506\n",
            "timeout: 5\nroot_dir: \"/x\n",
            "- no mapping\n",
            "timeout: [1\nnodegroups: {a\n",
            "}\n",
        ] {
            let (_dir, loaded) = with(main, "");
            assert!(loaded.is_err(), "{main:?}");
        }
    }

    #[test]
    fn directory_that_cannot_be_written_stops_no_tool() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let main = format!("cachedir: {}/file/cache\n", dir.path().display());
        let (_dir, loaded) = with(&main, "");
        let loaded = loaded.map_err(|errors| errors.to_string()).unwrap();
        assert!(loaded.findings.iter().any(is_of_process));
    }
}
