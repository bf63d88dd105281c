//! A minion's request for its pillar (`_pillar`). These minions have no use for a pillar: the request
//! brings the master their grains, by which it targets them.

use std::time::Duration;

use saltern_channel::channel::transport;
use saltern_channel::envelope::{nonce, seal};
use saltern_channel::{RequestError, SignInError};
use saltern_wire::client::ReqClient;
use saltern_wire::msgpack::Value;
use tokio::time::timeout;

use crate::private_reply::{PrivateReply, sealed_parts};
use crate::stats::Channel;

/// One pillar, over a connection of its own, as stock minions ask for it; `None` when only the outside
/// of its reply was looked at.
///
/// # Errors
/// No reply within `limit`, or none that the minion may believe.
pub(crate) async fn request(
    member: &Channel,
    grains: &Value,
    limit: Duration,
    is_opened: bool,
) -> Result<Option<Value>, RequestError> {
    let session = match member.session() {
        Some(session) => session,
        None => member.sign_in(None).await?,
    };
    let nonce = nonce();
    let fields = fields(member.id(), grains);
    let request = seal(&session.own, &fields, &nonce, &member.sealing());
    let exchange = async {
        let connected = ReqClient::connect(member.route().clone()).await;
        let mut connection = connected.map_err(transport)?;
        connection.request(request).await.map_err(transport)
    };
    let reply = timeout(limit, exchange)
        .await
        .map_err(|_| RequestError::Timeout(limit))??;
    let unopened = |error| RequestError::Reply(format!("{error}"));
    if !is_opened {
        return sealed_parts(&reply).map(|_| None).map_err(unopened);
    }
    let who = member.identity();
    let master = who.store.load().map_err(SignInError::from)?;
    let master = master.ok_or_else(|| SignInError::NoAnswer(String::new()))?;
    let expected = PrivateReply {
        keys: &who.keys,
        master: &master,
        enc_algo: who.config.encryption_algorithm,
        sig_algo: who.config.signing_algorithm,
    };
    expected.open(&reply, &nonce).map(Some).map_err(unopened)
}

/// The load of a stock minion without an environment (`AsyncRemotePillar` in
/// `salt/pillar/__init__.py`).
fn fields(id: &str, grains: &Value) -> Vec<(&'static str, Value)> {
    let nothing = || Value::Map(Vec::new());
    vec![
        ("id", id.into()),
        ("grains", grains.clone()),
        ("saltenv", Value::Nil),
        ("pillarenv", Value::Nil),
        ("pillar_override", nothing()),
        ("extra_minion_data", nothing()),
        ("ver", "2".into()),
        ("cmd", "_pillar".into()),
    ]
}
