//! Sending to a bounded mailbox out of a handler, without losing the message and without ignoring
//! the bound.

use actix::dev::ToEnvelope;
use actix::fut::wrap_future;
use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message};

/// Sends `message`. When the receiver's mailbox is full, the sender handles nothing else until
/// there is room: the pressure goes back towards the network.
pub(crate) fn push<A, B, M>(context: &mut Context<A>, receiver: &Addr<B>, message: M)
where
    A: Actor<Context = Context<A>>,
    B: Actor + Handler<M>,
    B::Context: ToEnvelope<B, M>,
    M: Message<Result = ()> + Send + 'static,
{
    use actix::dev::SendError;
    match receiver.try_send(message) {
        Ok(()) => {}
        Err(SendError::Full(message)) => {
            let sending = receiver.send(message);
            context.wait(wrap_future::<_, A>(sending).map(|sent, _, _| {
                if let Err(error) = sent {
                    tracing::error!(%error, "a message between actors was lost");
                }
            }));
        }
        Err(SendError::Closed(_)) => {
            tracing::error!("a message between actors was lost: the receiver has ended");
        }
    }
}
