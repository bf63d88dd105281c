//! Helpers for tests of single actors: recording receivers, and real requests, because only a
//! connection has a reply handle.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Message, Recipient};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use saltern_base::metrics::Registry;
use saltern_model::{Event, Jid, JobRecord, Packed, Tag};
use saltern_supervise::{Budget, Tree};
use saltern_wire::client::Route;
use saltern_wire::port::{Incoming, ListenOptions, ReqLimits, ReqListener, RequestSink, bind};
use saltern_wire::zmtp::ReqClient;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The answer to a request that was not handled.
pub(crate) const NOT_HANDLED: &[u8] = b"\xda\x00\x26Some exception handling minion payload";

/// Runs a test on one thread.
pub(crate) fn in_system(test: impl Future<Output = ()>) {
    actix::System::new().block_on(async {
        let ended = tokio::time::timeout(Duration::from_secs(180), test).await;
        ended.expect("the test ends in time");
    });
}

/// A stored `test.ping` of all minions, of which none is expected; its load says nothing.
pub(crate) fn ping(jid: Jid) -> JobRecord {
    JobRecord {
        jid,
        created: 1,
        user: "root".to_owned(),
        fun: "test.ping".to_owned(),
        tgt: "*".to_owned(),
        tgt_type: "glob".to_owned(),
        load: Packed::new(&b"\x80"[..]),
        minions: Vec::new(),
        nocache: false,
    }
}

/// A tree for the actor that is tested.
pub(crate) fn tree(registry: &Registry) -> Tree {
    let budget = Budget::new(10, Duration::from_secs(60));
    Tree::new("test", budget, registry)
}

struct Recorder<M>(UnboundedSender<M>);

impl<M: Unpin + 'static> Actor for Recorder<M> {
    type Context = Context<Self>;
}

impl<M: Message<Result = ()> + Unpin + 'static> Handler<M> for Recorder<M> {
    type Result = ();

    fn handle(&mut self, message: M, _: &mut Self::Context) {
        // A test that is over does not listen any more.
        let _ = self.0.send(message);
    }
}

/// An actor that only records its messages.
pub(crate) fn recorder<M>() -> (Recipient<M>, UnboundedReceiver<M>)
where
    M: Message<Result = ()> + Send + Unpin + 'static,
{
    let (sender, receiver) = unbounded_channel();
    (Recorder(sender).start().recipient(), receiver)
}

/// The address of an actor that has ended.
pub(crate) fn closed<M>() -> Recipient<M>
where
    M: Message<Result = ()> + Send + Unpin + 'static,
{
    Context::<Recorder<M>>::new().address().recipient()
}

/// A request port whose requests the test gets.
pub(crate) struct Port {
    address: SocketAddr,
    requests: UnboundedReceiver<Incoming>,
    _stop: tokio_util::sync::DropGuard,
}

struct Sink(UnboundedSender<Incoming>);

impl RequestSink for Sink {
    fn try_deliver(&self, incoming: Incoming) -> Result<(), Incoming> {
        self.0.send(incoming).map_err(|refused| refused.0)
    }

    fn deliver(&self, _: Incoming) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

impl Port {
    pub(crate) fn open() -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = bind(address, &ListenOptions::default()).unwrap();
        let address = listener.local_addr().unwrap();
        let listener = ReqListener::new(
            vec![listener.into()],
            ReqLimits::default(),
            &Registry::new(),
        )
        .unwrap();
        let (sender, requests) = unbounded_channel();
        let stop = CancellationToken::new();
        actix_rt::spawn(listener.serve(Arc::new(Sink(sender)), stop.clone()));
        Self {
            address,
            requests,
            _stop: stop.drop_guard(),
        }
    }

    /// A request on a connection of its own, and its reply to come; aborted, the connection ends.
    pub(crate) async fn ask(&mut self, payload: &[u8]) -> (Incoming, JoinHandle<Bytes>) {
        let exchange = self.exchange(None, payload);
        let reply = actix_rt::spawn(async move { exchange.await.expect("a reply") });
        (self.requests.recv().await.unwrap(), reply)
    }

    /// Sends a request from an address of this machine; `None` instead of a reply when the
    /// connection is closed without one.
    pub(crate) async fn ask_from(
        &mut self,
        from: Option<IpAddr>,
        payload: &[u8],
    ) -> (Incoming, JoinHandle<Option<Bytes>>) {
        let reply = actix_rt::spawn(self.exchange(from, payload));
        (self.requests.recv().await.unwrap(), reply)
    }

    fn exchange(
        &self,
        from: Option<IpAddr>,
        payload: &[u8],
    ) -> impl Future<Output = Option<Bytes>> + use<> {
        let (to, payload) = (self.address, Bytes::copy_from_slice(payload));
        async move {
            let route = Route {
                from,
                ..Route::from(to)
            };
            let mut client = ReqClient::connect(route, None).await.unwrap();
            client.request(payload).await.ok()
        }
    }
}

/// An event with this tag.
pub(crate) fn event(tag: &str) -> Event {
    Event {
        tag: Tag::parse(tag).unwrap(),
        data: Packed::new(&b"\x80"[..]),
    }
}
