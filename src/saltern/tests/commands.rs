//! The command line of the built program: every command explains itself, and a mistake in its
//! arguments is answered with a sentence and the exit code of a usage error.

use std::process::{Command, Output};

fn saltern(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_saltern"))
        .args(arguments)
        .output()
        .expect("our program starts")
}

/// The names of the commands, as `saltern --help` lists them.
fn commands() -> Vec<String> {
    let help = saltern(&["--help"]);
    assert!(help.status.success(), "{help:?}");
    let text = String::from_utf8(help.stdout).expect("help is text");
    let list = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = list.take_while(|line| !line.is_empty());
    names
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

#[test]
fn every_command_asked_for_help_explains_itself() {
    let commands = commands();
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands.iter().filter(|command| *command != "help") {
        let help = saltern(&[command, "--help"]);
        assert!(help.status.success(), "{command}: {help:?}");
        let text = String::from_utf8_lossy(&help.stdout);
        assert!(text.contains("Usage: saltern"), "{command}: {text}");
        assert!(help.stderr.is_empty(), "{command}: {help:?}");
    }
}

#[test]
fn unknown_command_is_a_usage_error() {
    let output = saltern(&["mastr"]);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("mastr"), "{text}");
}
