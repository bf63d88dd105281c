//! (swarm: written once the swarm is there)
use saltern_base::exit::Exit;
#[derive(clap::Args)]
pub(crate) struct Arguments {}
pub(crate) fn run(_: Arguments) -> Exit {
    Exit::Failure
}
