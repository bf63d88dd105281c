//! The minions of a site: configured, started, accepted, ended.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::config::Config;
use crate::minion_keys;
use crate::process::{Daemon, wait_until};
use crate::release::{Release, lab_program};
use crate::site::{SOON, Site, user};

pub(crate) struct Minion {
    pub(crate) kind: MinionKind,
    pub(crate) config: Config,
    pub(crate) daemon: Option<Daemon>,
}

/// Program of a minion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinionKind {
    /// `salt-minion` of a stock release.
    Stock(Release),
    /// `saltern-lab minion`.
    Native,
}

impl Site {
    /// Starts a minion with this id; its key is not accepted by this.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_minion(&mut self, id: &str, kind: MinionKind) -> Result<()> {
        if !self.minions.contains_key(id) {
            let config = self.minion_config(id, kind);
            self.minions.insert(
                id.to_owned(),
                Minion {
                    kind,
                    config,
                    daemon: None,
                },
            );
        }
        self.start_prepared_minion(id)
    }

    /// Lays out a minion without starting it; `configure` may set its options.
    ///
    /// # Errors
    /// When its files cannot be written.
    pub fn prepare_minion(
        &mut self,
        id: &str,
        kind: MinionKind,
        configure: impl FnOnce(&mut Config),
    ) -> Result<()> {
        let mut config = self.minion_config(id, kind);
        configure(&mut config);
        config.write(&self.minion_conf(id).join("minion"))?;
        self.minions.insert(
            id.to_owned(),
            Minion {
                kind,
                config,
                daemon: None,
            },
        );
        Ok(())
    }

    /// Starts a minion that was laid out or stopped before.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_prepared_minion(&mut self, id: &str) -> Result<()> {
        let conf = self.minion_conf(id);
        let output = self.path(format!("log/{id}.out"));
        let minion = self.minions.get_mut(id).context("no such minion")?;
        minion.config.write(&conf.join("minion"))?;
        let mut command = match minion.kind {
            MinionKind::Stock(release) => Command::new(release.program("salt-minion")),
            MinionKind::Native => {
                let mut command = Command::new(lab_program());
                command.arg("minion");
                command
            }
        };
        command.arg("-c").arg(&conf);
        minion.daemon = Some(Daemon::start(id, &mut command, &output)?);
        Ok(())
    }

    /// Ends a minion at once.
    pub fn kill_minion(&mut self, id: &str) {
        if let Some(minion) = self.minions.get_mut(id) {
            minion.daemon = None;
        }
    }

    /// Ends a stock minion so that it can be started anew. While a killed process is in the process table, the
    /// next one of 3008 would end itself in favour of those that these files name.
    ///
    /// # Errors
    /// When one of the files cannot be removed.
    pub fn end_stock_minion(&mut self, id: &str) -> Result<()> {
        self.kill_minion(id);
        for file in ["minion.pid", "process_responsibility_minion.pid"] {
            match fs::remove_file(self.minion_path(id, file)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends a stock minion and starts it anew; waits until it is in.
    ///
    /// # Errors
    /// When it does not get in.
    pub fn restart_stock_minion(&mut self, id: &str) -> Result<()> {
        self.end_stock_minion(id)?;
        let mark = self.events().mark();
        self.start_prepared_minion(id)?;
        let started = format!("salt/minion/{id}/start");
        self.events().find_since(mark, &started, SOON, |event| {
            (event.tag == started).then_some(())
        })
    }

    /// Has a stock minion return a job. One of 3007.15 may return nothing from its start on, as its jobs do not reach the
    /// process that has the connection: below a master of stock, where that is nobody's fault but its own, it is started
    /// anew.
    ///
    /// # Errors
    /// When it does not return it.
    pub fn wait_until_returns(&mut self, id: &str) -> Result<()> {
        let mut run = self.salt(&["-t", "30", id, "test.ping"])?;
        if !self.server().is_ours() && !run.stdout.contains("True") {
            self.restart_stock_minion(id)?;
            run = self.salt(&["-t", "30", id, "test.ping"])?;
        }
        run.expect_text("True")?;
        Ok(())
    }

    /// Waits until our master knows that this minion is not connected.
    ///
    /// # Errors
    /// When it does not come to know.
    pub fn wait_until_away(&self, id: &str) -> Result<()> {
        let away = [
            "minions",
            id,
            "-w",
            "not present",
            "--columns",
            "id",
            "--out=csv",
        ];
        wait_until("the minion to be known as away", SOON, || {
            let run = self.saltern(&away).ok()?;
            run.stdout.lines().any(|line| line == id).then_some(())
        })
    }

    /// Has [`Site::wait_until_ready_again`] wait for this minion alone, whose connection is about to be lost while its
    /// master goes on.
    pub fn expect_loss_of(&mut self, id: &str) {
        self.losses_before = self.all_losses();
        self.losses_before.retain(|one, _| one == id);
    }

    /// Waits until the stock minions that notice the loss of their master have noticed the last end of it, and
    /// got over it.
    ///
    /// Since 3007 a minion that loses its publish connection signs in anew (`__master_disconnected` in
    /// `salt/minion.py`). A return that falls into that time is lost, and now and then each one after it until
    /// the minion is restarted, whichever master is there.
    ///
    /// # Errors
    /// When one of them does not say in time that it is ready.
    pub fn wait_until_ready_again(&self) -> Result<()> {
        self.wait_until_all(|is_lost, is_ready| is_lost && is_ready)
    }

    /// The same where some of them had another master, whose loss they do not notice: waits for those that have
    /// noticed one by now.
    ///
    /// # Errors
    /// As for [`Site::wait_until_ready_again`].
    pub fn wait_until_ready(&self) -> Result<()> {
        self.wait_until_all(|is_lost, is_ready| !is_lost || is_ready)
    }

    /// Waits until this holds for each of them, of whether it has noticed the last end of its master, and is ready.
    fn wait_until_all(&self, holds: impl Fn(bool, bool) -> bool) -> Result<()> {
        for (id, before) in &self.losses_before {
            wait_until(&format!("{id} to be ready again"), SOON, || {
                let (losses, is_ready) = self.losses(id).ok()?;
                holds(losses > *before, is_ready).then_some(())
            })?;
        }
        Ok(())
    }

    /// How often each stock minion that runs, and would notice it, has lost its master. Those of 3006 do not.
    pub(crate) fn all_losses(&self) -> BTreeMap<String, usize> {
        let minions = self.minions.iter().filter(|(_, minion)| {
            let is_of_3006 = minion.kind == MinionKind::Stock(Release::V3006);
            minion.kind != MinionKind::Native && !is_of_3006 && minion.daemon.is_some()
        });
        minions
            .filter_map(|(id, _)| Some((id.clone(), self.losses(id).ok()?.0)))
            .collect()
    }

    /// How often a stock minion has lost its master, by its log, and whether it is ready since.
    fn losses(&self, id: &str) -> Result<(usize, bool)> {
        let path = self.path(format!("minions/{id}/log"));
        let log = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut state = (0, false);
        for line in log.lines() {
            if line.contains("Connection to master ") && line.ends_with(" lost") {
                state = (state.0 + 1, false);
            } else if line.ends_with("Minion is ready to receive requests!") {
                state.1 = true;
            }
        }
        Ok(state)
    }

    /// The process of a minion that runs.
    ///
    /// # Errors
    /// When there is none.
    pub fn minion(&mut self, id: &str) -> Result<&mut Daemon> {
        self.minions
            .get_mut(id)
            .and_then(|minion| minion.daemon.as_mut())
            .with_context(|| format!("minion {id:?} is not running"))
    }

    /// Starts minions whose keys are accepted already, and waits until they are in.
    ///
    /// # Errors
    /// When one of them does not get in.
    pub fn bring_up(&mut self, minions: &[(&str, MinionKind)]) -> Result<()> {
        for (id, kind) in minions {
            self.accept_beforehand(id)?;
            self.start_minion(id, *kind)?;
        }
        for (id, _) in minions {
            self.wait_started(id)?;
        }
        Ok(())
    }

    /// Gives a minion that has not been started a key, and the master the same key as accepted.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn accept_beforehand(&mut self, id: &str) -> Result<()> {
        let pki = self.minion_path(id, "pki");
        if pki.join("minion.pem").exists() {
            return Ok(());
        }
        minion_keys::install(self.keys_given, &pki, &self.path("pki"), id)?;
        self.keys_given += 1;
        Ok(())
    }

    /// Starts minions, accepts their keys with stock `salt-key` and waits until they are in: for
    /// tests of keys.
    ///
    /// # Errors
    /// When one of them does not get in.
    pub fn bring_up_by_salt_key(&mut self, minions: &[(&str, MinionKind)]) -> Result<()> {
        for (id, kind) in minions {
            self.start_minion(id, *kind)?;
        }
        for (id, _) in minions {
            self.wait_pending(id)?;
        }
        for (id, _) in minions {
            self.accept(id)?;
        }
        for (id, _) in minions {
            self.wait_started(id)?;
        }
        Ok(())
    }

    /// Waits until the minion's key is pending.
    ///
    /// # Errors
    /// When it does not become so.
    pub fn wait_pending(&mut self, id: &str) -> Result<()> {
        let file = self.path("pki/minions_pre").join(id);
        let what = format!("the key of {id} to be pending");
        let minion = self.minion(id)?;
        let ended = wait_until(&what, SOON, || {
            if file.exists() {
                Some(None)
            } else {
                minion.ended().map(Some)
            }
        })?;
        match ended {
            None => Ok(()),
            Some(status) => bail!("minion {id} ended instead of asking to be let in: {status}"),
        }
    }

    /// Accepts a pending key with stock `salt-key`.
    ///
    /// # Errors
    /// When `salt-key` fails.
    pub fn accept(&self, id: &str) -> Result<()> {
        self.salt_key(&["-y", "-a", id])?.expect_code(0)?;
        Ok(())
    }

    /// Waits for the event with which a minion says that it is in; one of before counts too.
    ///
    /// Under a stock master it may have to be accepted once more: 3008's `salt-key` takes the
    /// pending key away before it writes the accepted one, and if the minion asks in between, it is
    /// pending again, which counts more there. Under ours the acceptance counts.
    ///
    /// # Errors
    /// When it does not come.
    pub fn wait_started(&self, id: &str) -> Result<()> {
        let tag = format!("salt/minion/{id}/start");
        let is_in = || self.events().has_come(&tag);
        let stays_out = || {
            let has = |state: &str| self.path(state).join(id).exists();
            !self.server().is_ours() && has("pki/minions") && has("pki/minions_pre")
        };
        let what = format!("minion {id} to start");
        let is_in = wait_until(&what, SOON, || match (is_in(), stays_out()) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        })?;
        if !is_in {
            self.accept(id)?;
            self.events().tag(&tag, SOON)?;
        }
        Ok(())
    }

    /// The directory with a minion's configuration.
    pub fn minion_conf(&self, id: &str) -> PathBuf {
        self.path("minions").join(id).join("conf")
    }

    /// A directory of a minion.
    pub fn minion_path(&self, id: &str, name: &str) -> PathBuf {
        self.path("minions").join(id).join(name)
    }

    fn minion_config(&self, id: &str, kind: MinionKind) -> Config {
        let root = self.path("minions").join(id).display().to_string();
        let mut config = Config::default();
        config
            .set("id", id)
            .set("master", "127.0.0.1")
            .set("master_port", self.ret_port)
            // Where a stock minion looks for its connection when it checks on its master.
            .set("publish_port", self.publish_port())
            .set("root_dir", &root)
            .set("pki_dir", format!("{root}/pki"))
            .set("cachedir", format!("{root}/cache"))
            .set("grains", "{role: web}")
            // Nothing that only waits.
            .set("acceptance_wait_time", 1)
            .set("acceptance_wait_time_max", 1)
            .set("random_reauth_delay", 0)
            .set("recon_default", 100)
            .set("recon_max", 500)
            .set("recon_randomize", "False")
            .set("rejected_retry", "True");
        // Ours says of each attempt that failed, stock does not: a busy machine takes its time. Stock drops a return
        // when all its attempts are over: as late as by its defaults, of which each is longer. But in 3007.15 each job
        // goes on for that long (`fire_event_async` in its `salt/utils/event.py` awaits nothing).
        let (attempt, attempts) = match kind {
            MinionKind::Stock(Release::V3007) => (1, 3),
            MinionKind::Stock(_) => (2, 10),
            MinionKind::Native => (60, 3),
        };
        config
            .set("return_retry_timer", attempt)
            .set("return_retry_timer_max", attempt + 1)
            .set("return_retry_tries", attempts);
        if let MinionKind::Stock(_) = kind {
            config
                .set("user", user())
                .set("sock_dir", format!("{root}/run"))
                .set("pidfile", format!("{root}/minion.pid"))
                .set("log_file", format!("{root}/log"))
                .set("log_level", "warning")
                .set("log_level_logfile", "info")
                .set("loop_interval", 1)
                // A load of all modules starts Node for this one, where there is one.
                .set("disable_modules", "[npm]")
                // No grain that asks the network.
                .set("enable_fqdns_grains", "False")
                .set("enable_gpu_grains", "False");
        }
        config
    }
}
