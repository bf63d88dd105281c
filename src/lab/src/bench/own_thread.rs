//! The clients' side of a load, on a thread of its own: what it measures is the master, not how
//! busy the swarm is that shares the process.

use tokio::task::LocalSet;

use super::BenchError;

/// Runs `work` on a thread and waits for its result.
pub(super) async fn on_own_thread<T, F>(
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<T, BenchError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, BenchError>>,
{
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(BenchError::Thread)?;
    std::thread::Builder::new()
        .name("client".to_owned())
        .spawn(move || {
            let done = LocalSet::new().block_on(&runtime, work());
            // The caller waits for the result.
            let _ = sender.send(done);
        })
        .map_err(BenchError::Thread)?;
    receiver.await.map_err(|_| BenchError::ClientSide)?
}
