//! `saltern documents`: the manual pages and the completions of the shells, made of the definition
//! of the arguments, so that they cannot say anything else than the program does.
//!
//! Hidden: for package builds (`packaging/deb/build.sh`).

use std::io;
use std::path::{Path, PathBuf};

use clap_complete::Shell;
use saltern_base::exit::Exit;

use super::complain;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The directory in which `man` and `completions` are written; it must exist.
    directory: PathBuf,
}

/// The shells whose completions are written.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Fish, Shell::Zsh];

pub(crate) fn run(arguments: &Arguments, program: clap::Command) -> Exit {
    match write(&arguments.directory, program) {
        Ok(()) => Exit::Ok,
        Err(error) => {
            let directory = arguments.directory.display();
            complain(&format!("cannot write into \"{directory}\": {error}"));
            Exit::CannotCreate
        }
    }
}

/// Words that a shell completes by asking the master, beside those of the definition.
const fn known_words(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => include_str!("complete.bash"),
        Shell::Zsh => include_str!("complete.zsh"),
        _ => include_str!("complete.fish"),
    }
}

/// The completion by the definition, with that by the master.
fn with_known_words(shell: Shell, made: &str) -> String {
    let known = known_words(shell);
    if shell != Shell::Zsh {
        return format!("{made}{known}");
    }
    // Zsh calls the function that is named as the file, so that one asks first. It is called at the end.
    let made = made.replace("\n_saltern() {\n", "\n_saltern_defined() {\n");
    let end = "\nif [ \"$funcstack[1]\" = \"_saltern\" ]";
    made.replace(end, &format!("\n{known}{}", end.trim_start()))
}

/// Commands for those who work on this program, whose parts need no pages of their own.
const OF_DEVELOPERS: [&str; 1] = ["debug"];

/// The program as the manual has it: a page for each command, and for each part of one that an
/// operator calls. What `help` says is on these pages.
fn manual(program: clap::Command) -> clap::Command {
    let mut program = program.disable_help_subcommand(true);
    let names: Vec<String> = program
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect();
    for name in names {
        let hides = OF_DEVELOPERS.contains(&name.as_str());
        program = program.mut_subcommand(name, |command| {
            let command = command.disable_help_subcommand(true);
            match hides {
                true => command.mut_subcommands(|part| part.hide(true)),
                false => command,
            }
        });
    }
    program
}

fn write(directory: &Path, mut program: clap::Command) -> io::Result<()> {
    // Before the completions are made, which adds `help` to the definition.
    let manual = manual(program.clone());
    let completions = directory.join("completions");
    std::fs::create_dir_all(&completions)?;
    for shell in SHELLS {
        let written = clap_complete::generate_to(shell, &mut program, "saltern", &completions)?;
        let made = std::fs::read_to_string(&written)?;
        std::fs::write(written, with_known_words(shell, &made))?;
    }
    let pages = directory.join("man");
    std::fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(manual, &pages)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_that_is_shown_has_a_page_and_is_completed() {
        let program = crate::Arguments::command();
        let directory = tempfile::tempdir().expect("a directory");
        write(directory.path(), program.clone()).expect("written");
        let read = |name: &str| {
            std::fs::read_to_string(directory.path().join(name)).expect("the file was written")
        };
        let completions = [
            "completions/saltern.bash",
            "completions/saltern.fish",
            "completions/_saltern",
        ]
        .map(read);
        for shell in &completions {
            assert!(shell.contains(" complete line -- "), "{shell}");
        }
        assert!(completions.iter().any(|shell| {
            shell.contains("_saltern_defined() {") && shell.matches("\n_saltern() {").count() == 1
        }));
        for command in program.get_subcommands().filter(|one| !one.is_hide_set()) {
            let name = command.get_name();
            let about = command.get_about().expect("every command says what it is");
            let first = about.to_string();
            let first = first.split_whitespace().next().expect("a word");
            let page = read(&format!("man/saltern-{name}.1"));
            assert!(
                page.contains(first),
                "saltern-{name}.1 does not say \"{about}\""
            );
            for shell in &completions {
                assert!(shell.contains(name), "\"{name}\" is not completed");
            }
        }
        let pages =
            std::fs::read_dir(directory.path().join("man")).expect("the directory is there");
        let pages: Vec<String> = pages
            .map(|page| {
                page.expect("read")
                    .file_name()
                    .into_string()
                    .expect("a text")
            })
            .collect();
        assert!(pages.len() <= 60, "{} pages: {pages:?}", pages.len());
        assert!(
            pages.iter().any(|page| page == "saltern-maintenance-run.1"),
            "{pages:?}"
        );
        let is_noise = |page: &&String| {
            ["-help", "-documents", "-debug-", "-pam"]
                .iter()
                .any(|part| page.contains(part))
        };
        assert_eq!(pages.iter().find(is_noise), None);
    }
}
