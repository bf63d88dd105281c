//! From a command line to options: the parser, what is added from standard input, and the Saltfile.

use std::env;
use std::fs;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use saltern_config::yaml::{self, Limits};

use super::common::ConfigOptions;
use super::ending::Ending;
use super::grammar::{Grammar, Parsed};

/// The options of one command.
pub trait CommandOptions: Default {
    /// The table.
    fn grammar() -> Grammar<Self>;

    /// Options for the directory of the configuration.
    fn config(&self) -> &ConfigOptions;

    /// Whether more of the command line comes by standard input (`--args-stdin`).
    fn reads_stdin(&self) -> bool {
        false
    }
}

/// Reads a command line without the name of the program; `input` has more of it with `--args-stdin`.
/// Options that it leaves out are taken from a Saltfile.
///
/// # Errors
/// What to print instead of running the command.
pub fn read<T: CommandOptions>(
    line: impl IntoIterator<Item = impl Into<String>>,
    input: impl BufRead,
) -> Result<Parsed<T>, Ending> {
    read_by(&T::grammar(), line, input)
}

/// The same with a table that is not the whole one.
///
/// # Errors
/// As [`read`].
pub fn read_by<T: CommandOptions>(
    grammar: &Grammar<T>,
    line: impl IntoIterator<Item = impl Into<String>>,
    input: impl BufRead,
) -> Result<Parsed<T>, Ending> {
    let mut parsed = grammar.parse(line)?;
    if parsed.options.reads_stdin() {
        let lines: Result<Vec<String>, _> = input.lines().collect();
        let lines = lines
            .map_err(|error| grammar.refuse(&format!("standard input cannot be read: {error}")))?;
        let lines = lines.iter().map(|line| line.trim_end_matches('\r'));
        let more = grammar.parse(lines)?;
        // As in stock, the options of standard input stand for all.
        parsed.options = more.options;
        parsed.arguments.extend(more.arguments);
    }
    if parsed.options.config().versions_report == Some(true) {
        return Err(Ending::ok(grammar.version()));
    }
    if let Some(path) = saltfile(parsed.options.config()) {
        fill(grammar, &mut parsed.options, &path)?;
    }
    Ok(parsed)
}

/// The Saltfile: the option, `SALT_SALTFILE`, or the one in the current directory or in `~/.salt`.
fn saltfile(config: &ConfigOptions) -> Option<PathBuf> {
    let named = config.saltfile.clone().map(PathBuf::from);
    let named = named.or_else(|| env::var_os("SALT_SALTFILE").map(PathBuf::from));
    if let Some(named) = named {
        return Some(named).filter(|path| !path.as_os_str().is_empty());
    }
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".salt/Saltfile"));
    let mut places = [Some(PathBuf::from("Saltfile")), home]
        .into_iter()
        .flatten();
    places.find(|path| path.is_file())
}

fn fill<T>(grammar: &Grammar<T>, options: &mut T, path: &Path) -> Result<(), Ending> {
    let name = path.display().to_string();
    if !path.is_file() {
        return Err(grammar.refuse(&format!("'{name}' file does not exist.\n")));
    }
    let bytes = fs::read(path).map_err(|error| grammar.refuse(&format!("{name}: {error}")))?;
    let root = yaml::parse_bytes(&bytes, &name, &Limits::DEFAULT)
        .map_err(|error| grammar.refuse(&error.to_string()))?;
    let own = root.as_map().and_then(|root| root.get(grammar.program));
    if let Some(own) = own.and_then(yaml::Node::as_map) {
        grammar.fill(options, |dest| own.get(dest));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::super::SaltOptions;
    use super::*;

    #[test]
    fn standard_input_has_more_of_the_command_line() {
        let input = Cursor::new("--static\r\ntest.arg\n");
        let parsed = read::<SaltOptions>(["--args-stdin", "*"], input).map_err(|e| e.stderr);
        let parsed = parsed.unwrap();
        assert_eq!(parsed.arguments, ["*", "test.arg"]);
        assert_eq!(parsed.options.is_static, Some(true));
    }

    #[test]
    fn saltfile_gives_what_the_command_line_leaves_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Saltfile");
        fs::write(
            &path,
            "salt:\n  timeout: 30\n  static: true\n  output: json\n",
        )
        .unwrap();
        let file = path.display().to_string();
        let parsed = read::<SaltOptions>(["--saltfile", &file, "-t", "3"], Cursor::new(""));
        let options = parsed.map_err(|e| e.stderr).unwrap().options;
        assert_eq!(options.timeout, Some(3));
        assert_eq!(options.is_static, Some(true));
        assert_eq!(options.output.output.as_deref(), Some("json"));
        let absent = read::<SaltOptions>(["--saltfile", "/no/such"], Cursor::new(""));
        assert_eq!(absent.map(|_| ()).unwrap_err().code, 64);
    }
}
