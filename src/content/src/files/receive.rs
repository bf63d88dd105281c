//! Receives files that minions push (`cp.push`, `_file_recv`), into `cachedir/minions/<id>/files`.
//!
//! Nothing but regular files below that directory is ever written, and no symlink is followed on
//! the way. A chunk is written where it belongs; stock appends, so that a chunk which a minion
//! sends twice is in the file twice.

use std::fs::{self, File};

use saltern_model::MinionId;

use super::error::FilesError;
use super::options::Options;
use super::path::{MAX_PATH_BYTES, Relative};
use super::root::Root;

/// How deep below its directory a minion may push. Less than a walk goes, so that no minion can
/// make its files too deep to be listed.
const MAX_PARTS: usize = 100;

/// Writes one chunk; `false` if it is refused.
pub(crate) fn receive(
    options: &Options,
    minion: &MinionId,
    parts: &[&str],
    loc: i64,
    data: &[u8],
) -> Result<bool, FilesError> {
    let Some(path) = target(parts).filter(|_| options.receives) else {
        return Ok(false);
    };
    let Ok(offset) = u64::try_from(loc) else {
        return Ok(false);
    };
    let end = offset.saturating_add(data.len() as u64);
    if end > options.receive_limit {
        tracing::warn!(
            %minion,
            path = path.as_str(),
            limit = options.receive_limit,
            "a pushed file is larger than file_recv_max_size and is refused"
        );
        return Ok(false);
    }
    let minions = options.cachedir.join("minions");
    let shown = format!("{}/{minion}/files/{}", minions.display(), path.as_str());
    let failed = |error: std::io::Error| FilesError::io("write", &shown, error);
    fs::create_dir_all(&minions).map_err(failed)?;
    let below = Relative::parse(&format!("{minion}/files/{}", path.as_str()));
    let Ok(below) = below else {
        return Ok(false);
    };
    let file = Root::open(&minions)
        .and_then(|root| root.file_to_write(&below))
        .map_err(failed)?;
    write(&file, offset, data).map_err(failed)?;
    Ok(true)
}

/// The path that the parts name, as stock puts it together; `None` if it is refused.
fn target(parts: &[&str]) -> Option<Relative> {
    let bytes: usize = parts.iter().map(|part| part.len() + 1).sum();
    if bytes > MAX_PATH_BYTES || parts.contains(&"../") {
        return None;
    }
    let path = Relative::parse(&parts.join("/")).ok()?;
    (path.parts().count() <= MAX_PARTS).then_some(path)
}

fn write(file: &File, offset: u64, data: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    if offset == 0 {
        file.set_len(0)?;
    }
    file.write_all_at(data, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_parts_are_joined_as_by_stock() {
        let deep = vec!["d"; MAX_PARTS + 1];
        for (parts, path) in [
            (&["etc", "hosts"][..], Some("etc/hosts")),
            (&["a/b", "c"], Some("a/b/c")),
            (&["a", "..", "b"], Some("b")),
            (&[""; 1], None),
            (&[], None),
            (&["", "etc", "shadow"], None),
            (&["..", "x"], None),
            (&["a", "../../x"], None),
            (&["a", "../", "x"], None),
            (&["a\0b"], None),
            (&deep, None),
        ] {
            assert_eq!(
                target(parts).as_ref().map(Relative::as_str),
                path,
                "{parts:?}"
            );
        }
    }
}
