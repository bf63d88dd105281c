//! The reference of all options (`docs/options.md`), made from their rows.
//!
//! A test compares the page with the rows; with `UPDATE=1` it writes the page.

use std::fmt::Write as _;

use super::{ConfigOption, OURS, Origin, Reload, Status, all};

const HEAD: &str = "\
# Options

Generated from `src/config/src/options`; edit the rows there.
`UPDATE=1 tests/run.sh -E 'test(reference_of_options)'` writes this page.
`saltern check-config --explain OPTION` prints one row.

A default is JSON. Where the lines of Salt differ, each default names its line. \"SIGHUP\" says what becomes of a
changed value when the configuration is read again: *at once*, *restart* (it holds after a restart), or *never* (it
does nothing here). In `salt_compat` a configuration says whose defaults hold.
";

/// The page.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    section(
        &mut page,
        "Options of this program",
        "Stock Salt passes over them.",
        |option| option.is_ours(),
    );
    section(
        &mut page,
        "Options of Salt that are honoured",
        "They mean what they mean in Salt.",
        |option| !option.is_ours() && option.status == Status::Honoured,
    );
    section(
        &mut page,
        "Options of Salt that are not honoured yet",
        "A value other than the default is a warning.",
        |option| matches!(option.status, Status::NotBuilt(_)),
    );
    section(
        &mut page,
        "Options of Salt that are refused",
        "The master does not start with a value other than the default.",
        |option| matches!(option.status, Status::Refused(_)),
    );
    section(
        &mut page,
        "Options of modules in Python",
        "They are handed to the module with the rest of the configuration (`python_bridge`).",
        |option| option.status == Status::InPython,
    );
    section(
        &mut page,
        "Options of Salt without effect",
        "Nothing is lost with any value: each row says why.",
        |option| matches!(option.status, Status::NoEffect(_)) && !is_of_minions(option),
    );
    of_minions(&mut page);
    page
}

/// Whether an option is one of minions, of which there is nothing else to say.
fn is_of_minions(option: &ConfigOption) -> bool {
    let is_declared_there = matches!(option.origin, Origin::Minion | Origin::Schema);
    matches!(option.status, Status::NoEffect(_)) && is_declared_there
}

fn section(page: &mut String, title: &str, text: &str, is_in: impl Fn(&ConfigOption) -> bool) {
    let _ = write!(
        page,
        "\n## {title}\n\n{text}\n\n| option | default | Salt | SIGHUP | meaning |\n|---|---|---|---|---|\n"
    );
    for option in OURS.iter().chain(all()).filter(|option| is_in(option)) {
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} |",
            option.name,
            default(option),
            versions(option),
            reload(option.reload),
            escaped(&meaning(option)),
        );
    }
}

fn of_minions(page: &mut String) {
    page.push_str(
        "\n## Options of minions\n\nA master's configuration may hold them, and they have no effect there. Minions honour \
         them in theirs.\n\n",
    );
    let names: Vec<String> = all()
        .iter()
        .filter(|option| is_of_minions(option))
        .map(|option| format!("`{}`", option.name))
        .collect();
    page.push_str(&names.join(", "));
    page.push_str(".\n");
}

fn default(option: &ConfigOption) -> String {
    match option.defaults_text().as_str() {
        "none" => "–".to_owned(),
        text => format!("`{}`", escaped(text)),
    }
}

fn versions(option: &ConfigOption) -> String {
    match option.is_ours() {
        true => "–".to_owned(),
        false => option.versions_text(),
    }
}

fn reload(reload: Reload) -> &'static str {
    match reload {
        Reload::InEffect => "at once",
        Reload::NeedsRestart => "restart",
        Reload::NoEffect => "never",
    }
}

fn meaning(option: &ConfigOption) -> String {
    match option.status {
        Status::Honoured | Status::InPython => option.doc.to_owned(),
        Status::NotBuilt(part) => format!("{} For {}.", option.doc, part.part()),
        Status::Refused(why) => format!("{} Refused: {why}.", option.doc),
        Status::NoEffect(why) => format!("{why}."),
    }
}

/// A text for a cell of a table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}
