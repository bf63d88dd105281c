//! The commands of a site: stock's, run against its master, and our own.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::minions::MinionKind;
use crate::process::{Daemon, Run, peer, run, wait_until};
use crate::release::{Release, saltern_program};
use crate::session::Session;
use crate::site::{SOON, Site};

impl Site {
    /// Runs `salt -c CONF …` of the site's release.
    ///
    /// # Errors
    /// When it is not done in time.
    pub fn salt(&self, arguments: &[&str]) -> Result<Run> {
        self.stock("salt", arguments)
    }

    /// Runs `salt-key -c CONF …`.
    ///
    /// # Errors
    /// When it is not done in time.
    pub fn salt_key(&self, arguments: &[&str]) -> Result<Run> {
        self.stock("salt-key", arguments)
    }

    /// Runs `salt-run -c CONF …`.
    ///
    /// # Errors
    /// When it is not done in time.
    pub fn salt_run(&self, arguments: &[&str]) -> Result<Run> {
        self.stock("salt-run", arguments)
    }

    /// Runs stock `salt-call` with the configuration of this minion and in its release.
    ///
    /// # Errors
    /// When it is not done in time.
    pub fn salt_call(&self, id: &str, arguments: &[&str]) -> Result<Run> {
        let release = match self.minions.get(id).map(|minion| minion.kind) {
            Some(MinionKind::Stock(release)) => release,
            _ => self.server.release(),
        };
        let mut command = Command::new(release.program("salt-call"));
        command.arg("-c").arg(self.minion_conf(id)).args(arguments);
        run(&mut command, SOON * 2)
    }

    /// Opens a session with the keys of this minion, by stock's request channel.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn session_of(&self, id: &str) -> Result<Session> {
        let mut command = Command::new(self.server.release().program("python"));
        command
            .arg(peer("send_event.py"))
            .arg(self.minion_conf(id).join("minion"));
        Session::start(&mut command, &self.path(format!("log/session-{id}")))
    }

    /// Starts a program of `tests/peers` with the configuration of this minion, in this release;
    /// one line to it has one line as its answer.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn peer(&self, program: &str, id: &str, release: Release) -> Result<Session> {
        let mut command = Command::new(release.program("python"));
        command
            .arg(peer(program))
            .arg(self.minion_conf(id).join("minion"));
        Session::start(&mut command, &self.path(format!("log/peer-{id}")))
    }

    /// Opens a session of stock's client with the site's master.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn client(&self) -> Result<Session> {
        let mut command = Command::new(self.server.release().program("python"));
        command
            .arg(peer("local_client.py"))
            .arg(self.path("conf/master"));
        Session::start(&mut command, &self.path("log/client"))
    }

    /// Starts stock's salt-api beside the site's master, which has its options in its own file.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_api(&self) -> Result<Daemon> {
        self.start_api_with(&[])
    }

    /// The same, with more Python packages than stock brings.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_api_with(&self, packages: &[PathBuf]) -> Result<Daemon> {
        let mut command = self.stock_command("salt-api", &[]);
        if !packages.is_empty() {
            command.env("PYTHONPATH", std::env::join_paths(packages)?);
        }
        Daemon::start("salt-api", &mut command, &self.path("log/api.out"))
    }

    /// Opens a session with a web interface at this port.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn api_client(&self, port: u16) -> Result<Session> {
        self.api_client_at(&format!("http://127.0.0.1:{port}"))
    }

    /// Opens a session with a web interface at this URL.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn api_client_at(&self, url: &str) -> Result<Session> {
        let mut command = Command::new(self.server.release().program("python"));
        command.arg(peer("api_client.py")).arg(url);
        let port = url.rsplit(':').next().unwrap_or_default();
        Session::start(&mut command, &self.path(format!("log/api-client-{port}")))
    }

    /// Opens a session with a program of `tests/peers` that uses a web interface, run by this Python.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn web_peer(&self, python: &Path, program: &str, arguments: &[&str]) -> Result<Session> {
        let mut command = Command::new(python);
        command.arg(peer(program)).args(arguments);
        Session::start(&mut command, &self.path(format!("log/{program}")))
    }

    /// Runs a program of our own: `saltern ARGUMENTS… -c CONF`.
    ///
    /// # Errors
    /// When it is not done in time.
    pub fn saltern(&self, arguments: &[&str]) -> Result<Run> {
        let mut command = Command::new(saltern_program());
        command.args(arguments).arg("-c").arg(self.path("conf"));
        run(&mut command, SOON * 2)
    }

    /// Runs `saltern cmd ARGUMENTS…`.
    ///
    /// # Errors
    /// When it is not done in time.
    pub fn saltern_cmd(&self, arguments: &[&str]) -> Result<Run> {
        let mut command = Command::new(saltern_program());
        // Before the others: what follows the function belongs to the function.
        command.args(["cmd", "-c"]).arg(self.path("conf"));
        run(command.args(arguments), SOON * 2)
    }

    /// Waits until our master has written a return of a minion into the job files that stock's `salt-run` reads.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn wait_until_mirrored(&self, jid: &str, id: &str) -> Result<()> {
        wait_until("the job files", SOON, || {
            let found = self.salt_run(&["jobs.lookup_jid", jid]).ok()?.stdout;
            found.contains(&format!("{id}:")).then_some(())
        })
    }

    /// The value of one metric of our master, summed up over all whose labels contain this text.
    ///
    /// # Errors
    /// When the master does not answer.
    pub fn metric(&self, name: &str, label: &str) -> Result<f64> {
        let run = self.saltern(&["metrics"])?;
        let text = &run.expect_code(0)?.stdout;
        let values = text.lines().filter_map(|line| {
            let (labelled, value) = line.rsplit_once(' ')?;
            let rest = labelled.strip_prefix(name)?;
            let is_it = rest.is_empty() || rest.starts_with('{');
            (is_it && rest.contains(label))
                .then(|| value.parse::<f64>().ok())
                .flatten()
        });
        Ok(values.sum())
    }

    /// A stock command of the site's release that talks to the master, not started yet.
    pub fn stock_command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.server.release().program(program));
        command.arg("-c").arg(self.path("conf")).args(arguments);
        command
    }

    /// Our own program under the name of stock's command, not started yet.
    pub fn own_command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(saltern_program());
        command
            .arg0(program)
            .arg("-c")
            .arg(self.path("conf"))
            .args(arguments);
        command
    }

    /// A file of `tests/peers` that talks to the master's sockets, not started yet: it is given the
    /// socket directory and the master's configuration first.
    pub fn stock_peer(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.server.release().program("python"));
        command
            .arg(peer(name))
            .args([self.path("run"), self.path("conf/master")])
            .args(arguments);
        command
    }

    fn stock(&self, program: &str, arguments: &[&str]) -> Result<Run> {
        run(&mut self.stock_command(program, arguments), SOON * 2)
    }
}
