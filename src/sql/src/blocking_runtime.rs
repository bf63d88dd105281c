//! The runtime of one connection, for a writer that blocks.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, EnterGuard, Runtime};
use tokio::time::Instant;

use crate::SqlError;

/// A runtime that may be dropped on any thread.
///
/// Tokio's own waits for its tasks when it is dropped, and panics on a thread of another runtime, as
/// an actor's is. This one leaves them to their end.
pub(crate) struct BlockingRuntime(Option<Runtime>);

impl BlockingRuntime {
    pub(crate) fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self(Some(runtime)))
    }

    /// Waits for the task.
    pub(crate) fn block_on<T>(
        &self,
        task: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, SqlError> {
        match &self.0 {
            Some(runtime) => runtime.block_on(task),
            None => Err(SqlError::Runtime(io::ErrorKind::NotConnected.into())),
        }
    }

    /// The time of the runtime's clock.
    pub(crate) fn now(&self) -> Instant {
        let _inside = self.enter();
        Instant::now()
    }

    /// Lets this thread drop what has tasks in the runtime.
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.0.as_ref().map(Runtime::enter)
    }
}

impl Drop for BlockingRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_is_dropped_within_another_one() {
        let runtime = BlockingRuntime::new().expect("a runtime");
        assert_eq!(runtime.block_on(async { Ok(1) }).expect("a result"), 1);
        let outer = Builder::new_current_thread().build().expect("a runtime");
        outer.block_on(async move { drop(runtime) });
    }
}
