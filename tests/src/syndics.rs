//! Stock's `salt-syndic` beside the master of a site, with the masters above it.

use std::process::Command;

use anyhow::Result;

use crate::config::Config;
use crate::process::Daemon;
use crate::release::Release;
use crate::site::{SOON, Site, user};

impl Site {
    /// Starts a stock syndic with this id beside the site's master, below the masters of `above`,
    /// which must accept its key by themselves, and waits until all of them have received its start
    /// event. Options of the syndic are options of the site's master (`syndic_mode`).
    ///
    /// # Errors
    /// When it is not there in time.
    pub fn start_syndic(&mut self, id: &str, release: Release, above: &[&Site]) -> Result<Daemon> {
        let masters = addresses(above);
        let root = self.path("syndic").display().to_string();
        let log = self.path("log/syndic").display().to_string();
        self.config()
            .set("syndic_master", masters)
            .set("syndic_log_file", &log)
            .set("syndic_pidfile", format!("{root}/syndic.pid"));
        if self.server().is_ours() {
            self.config().set("saltern_syndic", "stock");
        }
        self.write_config()?;
        self.write_syndic_identity(id)?;
        let marks: Vec<usize> = above.iter().map(|site| site.events().mark()).collect();
        let mut command = Command::new(release.program("salt-syndic"));
        command.arg("-c").arg(self.path("conf"));
        let daemon = Daemon::start(id, &mut command, &self.path("log/syndic.out"))?;
        let marked: Vec<(&Site, usize)> = above.iter().copied().zip(marks).collect();
        wait_for_syndic(id, &marked)?;
        Ok(daemon)
    }

    /// Makes the master of this site, which is ours and not started yet, a syndic of this id below the
    /// masters of `above`.
    ///
    /// # Errors
    /// When the configuration cannot be written.
    pub fn configure_native_syndic(&mut self, id: &str, above: &[&Site]) -> Result<()> {
        self.config().set("syndic_master", addresses(above));
        self.write_config()?;
        std::fs::create_dir_all(self.path("syndic"))?;
        self.write_syndic_identity(id)
    }

    /// The file in which a syndic finds its id, its keys and its patience, beside the master's.
    fn write_syndic_identity(&mut self, id: &str) -> Result<()> {
        let root = self.path("syndic").display().to_string();
        let mut config = Config::default();
        config
            .set("id", id)
            .set("user", user())
            .set("root_dir", &root)
            .set("pki_dir", format!("{root}/pki"))
            .set("sock_dir", format!("{root}/run"))
            // The value that means: the port that each master names (`salt/channel/client.py`).
            .set("publish_port", 4506)
            .set("acceptance_wait_time", 1)
            .set("acceptance_wait_time_max", 1)
            .set("random_reauth_delay", 0)
            .set("recon_default", 100)
            .set("recon_max", 500)
            .set("recon_randomize", "False")
            .set("return_retry_timer", 1)
            .set("return_retry_timer_max", 2)
            .set("enable_fqdns_grains", "False")
            .set("enable_gpu_grains", "False");
        config.write(&self.path("conf/minion"))?;
        Ok(())
    }
}

/// The value of `syndic_master` for these masters.
fn addresses(above: &[&Site]) -> String {
    let masters: Vec<String> = above
        .iter()
        .map(|site| format!("\"127.0.0.1:{}\"", site.ret_port()))
        .collect();
    format!("[{}]", masters.join(", "))
}

/// Waits until these masters have received the start event of a syndic behind their marks.
///
/// # Errors
/// When it does not come in time.
pub fn wait_for_syndic(id: &str, above: &[(&Site, usize)]) -> Result<()> {
    let tag = format!("salt/syndic/{id}/start");
    for (site, mark) in above {
        let what = format!("the syndic {id} to start");
        site.events()
            .find_since(*mark, &what, SOON, |event| (event.tag == tag).then_some(()))?;
    }
    Ok(())
}
