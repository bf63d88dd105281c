//! The dropfile: stock's `salt-key`, and a minion that gives up its key, request a new shared key
//! by it.
//!
//! `cachedir/.dfn`, mode 0400. 3006 looks at the mode only and removes the file whatever it says;
//! 3007 and 3008 also want the master's id in it and remove it only when they act on it
//! (`salt/master.py`, `handle_key_rotate`; `salt/crypt.py`, `dropfile`). Rotating is not done here.

use std::path::PathBuf;

use saltern_config::MasterConfig;
use saltern_model::Compat;

use crate::error::Result;
use crate::files::{self, Create, Version};
use crate::options::StoreOptions;

/// A regular file that only its owner may read: `S_IFREG | 0400`.
const MODE: u32 = 0o100_400;

/// Result of a check of the dropfile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropfile {
    /// There is none.
    None,
    /// A new shared key is wanted.
    Rotate,
    /// There is one that does not count, for this reason.
    Ignored(&'static str),
}

/// Looks at the dropfile and changes nothing.
pub fn check(config: &MasterConfig) -> Result<Dropfile> {
    check_with(&StoreOptions::from(config))
}

/// Looks at the dropfile and removes it when this version of Salt would.
pub fn take(config: &MasterConfig) -> Result<Dropfile> {
    take_with(&StoreOptions::from(config))
}

/// Which file it is, if there is one: another one asks for another shared key.
pub fn version(config: &MasterConfig) -> Result<Option<Version>> {
    let stat = Version::of(&path(&StoreOptions::from(config)), true)?;
    Ok(stat.map(|stat| stat.version))
}

/// Asks for a new shared key, as stock's `salt-key` does after it has deleted or rejected a key.
pub fn request(config: &MasterConfig) -> Result<()> {
    request_with(&StoreOptions::from(config))
}

/// Removes the dropfile; `false` when there was none.
pub fn remove(config: &MasterConfig) -> Result<bool> {
    files::remove(&path(&StoreOptions::from(config)))
}

/// [`check`] with this crate's options.
pub fn check_with(options: &StoreOptions) -> Result<Dropfile> {
    let path = path(options);
    let Some(stat) = Version::of(&path, true)? else {
        return Ok(Dropfile::None);
    };
    if stat.mode != MODE {
        return Ok(Dropfile::Ignored("its mode is not 0400"));
    }
    match options.compat {
        Compat::V3006 => Ok(Dropfile::Rotate),
        Compat::V3007 | Compat::V3008 => {
            let content = files::read(&path, 4 << 10)?;
            Ok(match content {
                None => Dropfile::None,
                Some(id) if id == options.id.as_bytes() => Dropfile::Rotate,
                Some(_) => Dropfile::Ignored("it does not hold the id of this master"),
            })
        }
    }
}

/// [`take`] with this crate's options.
pub fn take_with(options: &StoreOptions) -> Result<Dropfile> {
    let found = check_with(options)?;
    let taken = match found {
        Dropfile::None => false,
        Dropfile::Rotate => true,
        Dropfile::Ignored(_) => options.compat == Compat::V3006,
    };
    if taken {
        files::remove(&path(options))?;
    }
    Ok(found)
}

/// [`request`] with this crate's options.
fn request_with(options: &StoreOptions) -> Result<()> {
    let content = match options.compat {
        Compat::V3006 => "",
        Compat::V3007 | Compat::V3008 => options.id.as_str(),
    };
    let create = Create::PRIVATE.mode(MODE & 0o777);
    files::write_atomic(&path(options), content.as_bytes(), create)
}

fn path(options: &StoreOptions) -> PathBuf {
    options.cachedir.join(".dfn")
}
