//! The logging options, `log_*` and `saltern_log_format`: levels, destinations and format.
//!
//! Reads options only: the log file is opened when logging starts.

use crate::finding::Severity;
use crate::paths::is_uri;
use crate::reader::Reader;
use crate::values::{LogFormat, LogLevel};
use crate::yaml::{Key, Node};

/// The levels of the log, which SIGHUP takes over.
#[derive(Clone)]
pub struct LevelOptions {
    /// `log_level`: the level of the console.
    pub level: LogLevel,
    /// `log_level_logfile`: the level of the file.
    pub file_level: LogLevel,
    /// `log_granular_levels`: places of this program that have a level of their own, with it.
    pub granular_levels: Vec<(String, LogLevel)>,
}

/// The other options of the log.
#[derive(Clone)]
pub struct LogOptions {
    /// `log_file`: a path, or a URI such as `file:///dev/log`.
    pub file: String,
    /// `saltern_log_format`.
    pub format: LogFormat,
    /// `log_fmt_console`: Python's format of a line on the console.
    pub console_line: String,
    /// `log_fmt_logfile`: Python's format of a line in the file.
    pub file_line: String,
    /// `log_datefmt`: strftime's format of the time on the console.
    pub console_date: String,
    /// `log_datefmt_logfile`: strftime's format of the time in the file.
    pub file_date: String,
    /// `log_fmt_jid`: Python's format of the field `%(jid)s`, where a line has a job.
    pub jid: String,
    /// `log_rotate_max_bytes`: a file that would grow longer is set aside first; 0 for never.
    pub rotate_at: u64,
    /// `log_rotate_backup_count`: how many files that were set aside are kept; 0 sets none aside.
    pub rotated_files: u32,
}

/// The prefix of all log targets of this program.
const OURS: &str = "saltern";
/// Its crates that a master runs, without that.
const CRATES: [&str; 23] = [
    "actors",
    "automation",
    "base",
    "bridge",
    "channel",
    "cli",
    "client",
    "config",
    "console",
    "content",
    "crypto",
    "http",
    "model",
    "netapi",
    "output",
    "policy",
    "python",
    "requests",
    "runners",
    "sql",
    "store",
    "supervise",
    "wire",
];

/// The most places with a level of their own: each is looked through for every line.
const MAX_PLACES: usize = 64;

/// Reads the levels; `file` is where the log file is.
pub(crate) fn levels(reader: &mut Reader<'_>, file: &str) -> LevelOptions {
    let level = reader.choice("log_level").unwrap_or(LogLevel::Warning);
    let file_level = reader.optional_choice("log_level_logfile").unwrap_or(level);
    let is_elsewhere = is_uri(file) && file_level != LogLevel::Quiet;
    if is_elsewhere {
        let message = "sending lines to syslog is not supported: the log is only on standard \
                       error, which a service's journal keeps";
        reader.find(Severity::Warning, "log_file", message);
    }
    LevelOptions {
        level,
        file_level: match is_elsewhere {
            true => LogLevel::Quiet,
            false => file_level,
        },
        granular_levels: granular_levels(reader),
    }
}

/// Reads the other options; `file` is where the log file is.
pub(crate) fn take(reader: &mut Reader<'_>, file: String) -> LogOptions {
    LogOptions {
        file,
        format: reader
            .choice("saltern_log_format")
            .unwrap_or(LogFormat::Text),
        console_line: reader.text("log_fmt_console"),
        file_line: reader.text("log_fmt_logfile"),
        console_date: reader.text("log_datefmt"),
        file_date: reader.text("log_datefmt_logfile"),
        jid: reader.optional_text("log_fmt_jid").unwrap_or_default(),
        rotate_at: u64::from(reader.u32("log_rotate_max_bytes", 0)),
        rotated_files: reader.u32("log_rotate_backup_count", 0),
    }
}

/// Whether a name such as `saltern_actors::bus` is that of this program, of one of its crates, or of
/// something in one of these.
pub fn is_place(name: &str) -> bool {
    let of_program = name.split("::").next().unwrap_or_default();
    match of_program.strip_prefix(OURS) {
        Some("") => true,
        Some(rest) => rest
            .strip_prefix('_')
            .is_some_and(|rest| CRATES.contains(&rest)),
        None => false,
    }
}

/// The entries that name places of this program. Stock's names, such as `salt.loader`, name Python
/// modules that do not run here.
fn granular_levels(reader: &mut Reader<'_>) -> Vec<(String, LogLevel)> {
    let name = "log_granular_levels";
    let Some(node) = reader.written(name) else {
        return Vec::new();
    };
    let Some(entries) = node.as_map() else {
        reader.error(name, "is not a map of places and their levels");
        return Vec::new();
    };
    let mut levels = Vec::new();
    for (place, entry) in entries.iter() {
        let Key::Str(place) = place else {
            reader.error(name, "has a key that is not text");
            continue;
        };
        let Some(level) = Node::as_str(&entry.value).and_then(LogLevel::from_name) else {
            reader.error(name, format!("the level of \"{place}\" is none"));
            continue;
        };
        let name_here = place.replace('.', "::");
        if is_place(&name_here) {
            levels.push((name_here, level));
        } else {
            let message = format!("\"{place}\" names no place in this program");
            reader.find(Severity::Warning, name, message);
        }
    }
    if levels.len() > MAX_PLACES {
        reader.error(name, format!("has more than {MAX_PLACES} places"));
        levels.clear();
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_targets_are_known_by_their_crates_and_all_crates_are_known() {
        for place in [
            "saltern",
            "saltern::reload",
            "saltern_actors",
            "saltern_actors::bus",
        ] {
            assert!(is_place(place), "{place}");
        }
        for nowhere in [
            "salt::loader",
            "saltern_",
            "saltern_actor::bus",
            "salterns",
            "",
        ] {
            assert!(!is_place(nowhere), "{nowhere}");
        }
        let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
        let workspace = std::fs::read_to_string(workspace).unwrap();
        let crates = workspace
            .lines()
            .filter_map(|line| line.strip_prefix("saltern-")?.split(' ').next());
        let mut crates: Vec<&str> = crates
            .filter(|name| !matches!(*name, "minion" | "stock"))
            .collect();
        crates.sort_unstable();
        assert_eq!(crates, CRATES);
    }
}
