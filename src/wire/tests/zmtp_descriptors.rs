//! Test of the request listener without file descriptors. The limit that is lowered holds for the
//! whole process: cargo-nextest runs each test in one of its own.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use prometheus::Registry;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use saltern_wire::port::{
    Incoming, ListenOptions, Refusal, ReqLimits, ReqListener, RequestSink, bind,
};
use saltern_wire::zmtp::ReqClient;
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;
use tokio_util::sync::CancellationToken;

struct Echo;

impl RequestSink for Echo {
    fn try_deliver(&self, incoming: Incoming) -> Result<(), Incoming> {
        incoming.reply.send(incoming.payload);
        Ok(())
    }

    fn deliver(&self, _incoming: Incoming) -> BoxFuture<'_, ()> {
        unreachable!("try_deliver takes everything")
    }
}

fn refused(registry: &Registry) -> f64 {
    let families = registry.gather();
    let family = families
        .iter()
        .find(|family| family.name() == "saltern_port_refused_total")
        .expect("a known metric");
    family
        .get_metric()
        .iter()
        .filter(|metric| {
            metric
                .get_label()
                .iter()
                .any(|pair| pair.value() == Refusal::Descriptors.label())
        })
        .map(|metric| metric.get_counter().get_value())
        .sum()
}

/// Sets the soft limit so that the next descriptor is one too many.
fn take_all_descriptors() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    let next = std::fs::File::open("/dev/null").expect("open").as_raw_fd();
    let current = Some(u64::try_from(next).expect("not negative"));
    setrlimit(Resource::Nofile, Rlimit { current, ..before }).expect("lower the limit");
    before
}

#[tokio::test]
async fn listener_without_descriptors_pauses_and_keeps_serving() {
    let registry = Registry::new();
    let socket = bind(([127, 0, 0, 1], 0).into(), &ListenOptions::default()).expect("bind");
    let addr = socket.local_addr().expect("address");
    let listener =
        ReqListener::new(vec![socket.into()], ReqLimits::default(), &registry).expect("listener");
    tokio::spawn(listener.serve(Arc::new(Echo), CancellationToken::new()));
    let mut served = ReqClient::connect(addr, None).await.expect("connect");
    let late = TcpSocket::new_v4().expect("socket");

    let before = take_all_descriptors();
    let mut late = late.connect(addr).await.expect("the kernel connects");
    let patience = Duration::from_secs(20);
    let counted = async {
        let mut asked = 0u32;
        // So many that single stalls of this machine, of a pause each, do not count.
        while refused(&registry) < 2.0 || asked < 100 {
            let reply = served
                .request(Bytes::from_static(b"hi"))
                .await
                .expect("served");
            assert_eq!(reply, "hi");
            asked += 1;
        }
        asked
    };
    let asked = tokio::time::timeout(patience, counted)
        .await
        .expect("counted twice");
    // It paused between its attempts: a spinning loop would have left us no turn.
    let attempts = refused(&registry);
    assert!(
        attempts < f64::from(asked) / 2.0,
        "only {asked} requests were served between {attempts} attempts"
    );

    setrlimit(Resource::Nofile, before).expect("raise the limit");
    let mut greeting = [0; 10];
    let greeted = tokio::time::timeout(patience, late.read_exact(&mut greeting)).await;
    greeted.expect("accepted after all").expect("a greeting");
    assert_eq!(greeting[0], 0xff);
}
