//! Loads a master with a swarm and prints what came of it:
//! `cargo run --release -p saltern-minion --example swarm -- ADDRESS MINIONS AUTHS RETURNS`.
//! What is meant for people is `saltern bench`.

use std::time::Duration;

use saltern_minion::swarm::{AuthCheck, AuthStorm, ReturnFlood, Swarm, SwarmConfig, SwarmStats};
use saltern_wire::msgpack::Value;
use tokio_util::sync::CancellationToken;

#[expect(clippy::print_stdout, reason = "an example talks to the terminal")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || {
        arguments
            .next()
            .ok_or("usage: swarm ADDRESS MINIONS AUTHS RETURNS")
    };
    let (address, minions) = (next()?.parse()?, next()?.parse()?);
    let (auths, returns): (usize, usize) = (next()?.parse()?, next()?.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let stats = std::sync::Arc::new(SwarmStats::default());
        let begin = tokio::time::Instant::now();
        let mut config = SwarmConfig::new(minions, address);
        config.pki_dir = Some(std::env::temp_dir().join("saltern-swarm-example"));
        let swarm = Swarm::start(config, stats).await?;
        println!("{minions} minions signed in after {:?}", begin.elapsed());
        for (fresh_connection, check) in [
            (false, AuthCheck::Signature),
            (true, AuthCheck::Signature),
            (true, AuthCheck::Full),
        ] {
            let limit = Duration::from_secs(30);
            let storm = AuthStorm {
                total: auths,
                in_flight: 64,
                fresh_connection,
                check,
                limit,
            };
            println!("{storm:?}\n    {:?}", swarm.auth_storm(&storm).await);
        }
        for fresh_connection in [false, true] {
            let flood = ReturnFlood {
                total: returns,
                in_flight: 64,
                fresh_connection,
                jid: None,
                fun: "test.ping".to_owned(),
                value: Value::from(true),
                limit: Duration::from_secs(30),
            };
            println!(
                "fresh {fresh_connection}\n    {:?}",
                swarm.return_flood(&flood).await
            );
        }
        println!("now answering jobs; end with ^C");
        swarm.run(CancellationToken::new()).await;
        Ok(())
    })
}
