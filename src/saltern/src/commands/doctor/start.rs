//! Final findings where no master runs; errors that would refuse a start come from the checks of
//! the configuration, the ports and the database.

use nix::unistd::{Uid, User};

use super::{Diagnosis, Finding};

pub(super) fn check(diagnosis: &Diagnosis) -> Vec<Finding> {
    if diagnosis.running.is_some() || diagnosis.may_run {
        return Vec::new();
    }
    other_user(&diagnosis.loaded.config.user)
        .into_iter()
        .collect()
}

/// Says that this process is neither root nor the master's user.
fn other_user(name: &str) -> Option<Finding> {
    let account = User::from_name(name).ok().flatten()?;
    let current = Uid::effective();
    let is_other = !current.is_root() && account.uid != current;
    is_other.then(|| {
        let what = format!("not all could be looked at: this is not the user \"{name}\"");
        Finding::new(what, format!("ask again as root or \"{name}\"")).note()
    })
}

/// Finding for a master that does not run although it could.
pub(super) fn nothing_is_in_the_way() -> Finding {
    let what = "nothing was found that would keep a master from starting";
    let advice = "start it: systemctl start saltern, or saltern master; why the last one ended is in \
                  its log: journalctl -u saltern";
    Finding::new(what, advice).note()
}
