//! The three releases of stock Salt, and where their programs are.

use std::path::PathBuf;

/// A release of stock Salt that the tests compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// 3006.28, the long-term line.
    V3006,
    /// 3007.15.
    V3007,
    /// 3008.3, the newest and the one we imitate by default.
    V3008,
}

impl Release {
    /// Every release, oldest first.
    pub const ALL: [Release; 3] = [Release::V3006, Release::V3007, Release::V3008];

    /// The version as PyPI names it.
    pub fn version(self) -> &'static str {
        match self {
            Release::V3006 => "3006.28",
            Release::V3007 => "3007.15",
            Release::V3008 => "3008.3",
        }
    }

    /// The value of our option `salt_compat` for clients of this release.
    pub fn compat(self) -> &'static str {
        &self.version()[..4]
    }

    /// A minion id that says which release it runs.
    pub fn minion_id(self) -> String {
        format!("m{}", self.compat())
    }

    /// A program of this release, as `tests/install-stock.sh` installed it.
    ///
    /// # Panics
    /// When the release is not installed.
    pub fn program(self, name: &str) -> PathBuf {
        saltern_stock::program(self.version(), name)
    }
}

/// Master of a site; the release is that of its command line and event listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// The stock master of this release: the oracle.
    Stock(Release),
    /// Our master, set up for local clients of this release.
    Saltern(Release),
}

impl Server {
    /// The release of the command line that talks to this master.
    pub fn release(self) -> Release {
        match self {
            Server::Stock(release) | Server::Saltern(release) => release,
        }
    }

    /// Whether this is our own master.
    pub fn is_ours(self) -> bool {
        matches!(self, Server::Saltern(_))
    }
}

/// Our master with its tools; `SALTERN_BIN` overrides.
///
/// # Panics
/// When it has not been built: cargo does not build the binary of another package for a test.
pub fn saltern_program() -> PathBuf {
    std::env::var_os("SALTERN_BIN").map_or_else(|| built("saltern"), PathBuf::from)
}

/// Our minions and load.
///
/// # Panics
/// When it has not been built.
pub fn lab_program() -> PathBuf {
    built("saltern-lab")
}

/// A binary of this workspace, which cargo leaves one directory above the test binary.
fn built(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("the test binary has a path");
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    path.push(name);
    assert!(
        path.exists(),
        "{} is missing: `make test` builds it, or run `cargo build --workspace --all-features`",
        path.display()
    );
    path
}
