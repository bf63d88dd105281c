//! Runs one minion: `cargo run -p saltern-minion --example minion -- MCONF`. It is what
//! `tests/against_stock.rs` starts; people use `saltern minion`.

use std::path::Path;

use saltern_minion::{Minion, MinionConfig};
use tokio_util::sync::CancellationToken;

#[expect(clippy::print_stderr, reason = "an example talks to the terminal")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: minion MCONF")?;
    let loaded = MinionConfig::load(Path::new(&path))?;
    for finding in &loaded.findings {
        eprintln!(
            "{}: \"{}\" {}",
            finding.place, finding.option, finding.message
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(Minion::new(loaded.config).run(CancellationToken::new()))?;
    Ok(())
}
