//! The page of all commands of the handbook (`docs/reference/commands.md`), made of the definition of the
//! arguments. With `UPDATE=1` the test writes it.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory};

const HEAD: &str = "\
# Commands, with all their options

Generated from the program's own definition; `UPDATE=1 tests/run.sh -E 'test(reference_of_commands)'` writes this page.
`saltern help COMMAND` and `man saltern-COMMAND` say the same. [What each is for](../commands.md) is on a page of its own.

`salt`, `salt-key`, `salt-run`, `salt-cp` and `salt-master` are links to the program. They have stock's options;
[differences](../../src/cli/DIFFERENCES.md) are listed. A default of `/etc/salt` gives way to `SALT_CONFIG_DIR`.
";

/// How an argument is written.
fn written(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let value = names.iter().map(|name| name.as_str());
    let value = value.collect::<Vec<_>>().join(" ");
    let takes = arg.get_action().takes_values() && !value.is_empty();
    let short = arg.get_short().map(|c| format!("-{c}"));
    let long = arg.get_long().map(|name| format!("--{name}"));
    let flags: Vec<String> = short.into_iter().chain(long).collect();
    match (flags.is_empty(), takes) {
        (true, _) => value,
        (false, true) => format!("{} {value}", flags.join(", ")),
        (false, false) => flags.join(", "),
    }
}

fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    // The definition leaves out the last period.
    if !(text.is_empty() || text.ends_with(['.', '?'])) {
        text.push('.');
    }
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set() && arg.get_action().takes_values())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !values.is_empty() {
        let _ = write!(text, " One of {}.", values.join(", "));
    }
    let defaults = arg.get_default_values().iter();
    let defaults: Vec<String> = defaults
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    if !(defaults.is_empty() || arg.is_hide_default_value_set()) && arg.get_action().takes_values()
    {
        let _ = write!(text, " Default: {}.", defaults.join(", "));
    }
    text.replace('\n', " ")
        .replace('|', "\\|")
        .replace('<', "&lt;")
}

fn section(page: &mut String, command: &mut Command, level: usize) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let about = command.get_about().map(ToString::to_string);
    let _ = write!(
        page,
        "\n{} {name}\n\n{}\n",
        "#".repeat(level),
        about.unwrap_or_default()
    );
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim_end();
    let _ = write!(page, "\n```text\n{usage}\n```\n");
    let args = command.get_arguments();
    let args: Vec<&Arg> = args
        .filter(|arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version"))
        .collect();
    if !args.is_empty() {
        page.push_str("\n| argument | meaning |\n|---|---|\n");
    }
    for arg in args {
        let written = written(arg).replace('|', "\\|");
        let _ = writeln!(page, "| `{written}` | {} |", meaning(arg));
    }
    if let Some(more) = command.get_after_help() {
        let more = more.to_string();
        let _ = write!(page, "\n```text\n{}\n```\n", more.trim_end());
    }
    for part in command.get_subcommands_mut() {
        if !part.is_hide_set() && part.get_name() != "help" {
            section(page, part, level + 1);
        }
    }
}

#[test]
fn reference_of_commands_says_what_the_program_says() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/commands.md"
    );
    let mut program = crate::Arguments::command();
    program.build();
    let mut page = HEAD.to_owned();
    for command in program.get_subcommands_mut() {
        // Of developers, and of test builds.
        let is_own = matches!(command.get_name(), "debug" | "help");
        if !(command.is_hide_set() || is_own) {
            section(&mut page, command, 2);
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &page).expect("the page can be written");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    let mut lines = page.lines().zip(written.lines());
    let differs = lines.find(|(made, line)| made != line);
    assert_eq!(
        differs, None,
        "write docs/reference/commands.md anew with UPDATE=1"
    );
    assert_eq!(
        page.len(),
        written.len(),
        "write docs/reference/commands.md anew with UPDATE=1"
    );
}
