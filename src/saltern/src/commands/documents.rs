//! `saltern documents`: the manual pages and the completions of the shells, made of the definition
//! of the arguments, so that they cannot say anything else than the program does.
//!
//! Hidden: whoever builds a package asks for them (`packaging/deb/build.sh`).

use std::io;
use std::path::{Path, PathBuf};

use clap_complete::Shell;
use saltern_base::exit::Exit;

use super::complain;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where they go, into the directories `man` and `completions`; it must exist.
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

fn write(directory: &Path, mut program: clap::Command) -> io::Result<()> {
    let completions = directory.join("completions");
    std::fs::create_dir_all(&completions)?;
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut program, "saltern", &completions)?;
    }
    let manual = directory.join("man");
    std::fs::create_dir_all(&manual)?;
    clap_mangen::generate_to(program, &manual)
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
        assert!(!directory.path().join("man/saltern-documents.1").exists());
    }
}
