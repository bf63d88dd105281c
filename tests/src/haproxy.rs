//! A load balancer in front of masters: HAProxy of Debian, with the configuration that the handbook gives.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{Daemon, run, wait_until};
use crate::site::SOON;

/// The handbook's page, with the configuration in the block that begins with [`FIRST_LINE`].
const PAGE: &str = "docs/cluster.md";
const FIRST_LINE: &str = "# /etc/haproxy/haproxy.cfg\n";

/// A running HAProxy; it ends when this is dropped.
pub struct Haproxy {
    control: PathBuf,
    _daemon: Daemon,
}

impl Haproxy {
    /// Starts one in a directory with the handbook's configuration, in which each pair of `places` is
    /// replaced, and with `more` behind it.
    ///
    /// # Errors
    /// When it does not start, or the page does not contain what is to be replaced.
    pub fn start(directory: &Path, places: &[(&str, String)], more: &str) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let mut config = of_the_handbook()?;
        for (from, to) in places {
            ensure!(config.contains(from), "{PAGE} has no {from:?}");
            config = config.replace(from, to);
        }
        let control = directory.join("control");
        writeln!(
            config,
            "{more}\nglobal\n    stats socket {}",
            control.display()
        )?;
        let path = directory.join("haproxy.cfg");
        std::fs::write(&path, config)?;
        let mut check = program()?;
        run(check.args(["-c", "-f"]).arg(&path), SOON)?.expect_code(0)?;
        let mut command = program()?;
        command.args(["-db", "-f"]).arg(&path);
        let daemon = Daemon::start("haproxy", &mut command, &directory.join("haproxy.out"))?;
        let haproxy = Self {
            control,
            _daemon: daemon,
        };
        wait_until("HAProxy to answer", SOON, || haproxy.table().ok())?;
        Ok(haproxy)
    }

    /// A column of the row of a frontend, or of a server of a backend, in its statistics.
    ///
    /// # Errors
    /// When it does not answer, or has no such row or column.
    pub fn value(&self, proxy: &str, server: &str, column: &str) -> Result<String> {
        let table = self.table()?;
        let mut lines = table.trim_start_matches("# ").lines();
        let mut names = lines.next().context("a line of names")?.split(',');
        let place = names.position(|name| name == column);
        let place = place.with_context(|| format!("no column {column:?}"))?;
        let start = format!("{proxy},{server},");
        let row = lines.find(|line| line.starts_with(&start));
        let row = row.with_context(|| format!("no row {start:?} in {table}"))?;
        let value = row.split(',').nth(place).context("a short row")?;
        Ok(value.to_owned())
    }

    fn table(&self) -> Result<String> {
        let mut control = UnixStream::connect(&self.control)?;
        control.write_all(b"show stat\n")?;
        let mut table = String::new();
        control.read_to_string(&mut table)?;
        ensure!(table.starts_with("# "), "{table:?}");
        Ok(table)
    }
}

/// The configuration that the handbook gives.
fn of_the_handbook() -> Result<String> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(repository.join(PAGE)).context(PAGE)?;
    let mut blocks = page.split("```");
    let block = blocks.find_map(|block| block.split_once(FIRST_LINE));
    let (_, config) = block.with_context(|| format!("{PAGE} has no block of {FIRST_LINE:?}"))?;
    Ok(config.to_owned())
}

/// HAProxy, where `tests/install-stock.sh` puts it.
fn program() -> Result<Command> {
    let home = std::env::var_os("HOME").context("HOME is not set")?;
    let usr = Path::new(&home).join(".cache/saltern/tools/haproxy/usr");
    let path = usr.join("sbin/haproxy");
    ensure!(
        path.exists(),
        "\"{}\" is missing: run tests/install-stock.sh",
        path.display()
    );
    let libraries = std::fs::read_dir(usr.join("lib")).into_iter().flatten();
    let libraries = libraries.filter_map(|entry| Some(entry.ok()?.path()));
    let libraries = libraries.filter(|path| path.to_string_lossy().ends_with("-linux-gnu"));
    let mut command = Command::new(path);
    command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries)?);
    Ok(command)
}
