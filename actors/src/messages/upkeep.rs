//! Messages to the actors of periodic maintenance.

use actix::Message;

use crate::messages::MaintenanceTask;

// ---- to Maintenance ----------------------------------------------------------------------------

/// Run a maintenance task now. From the control socket.
#[derive(Message)]
#[rtype(result = "()")]
pub struct RunMaintenanceTask(pub MaintenanceTask);

// ---- to Upkeep ---------------------------------------------------------------------------------

/// Compare the disk with what is cached in memory. From Maintenance.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LookOver(pub Look);

/// See [`LookOver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// All tasks that are due.
    Due,
    /// Only this, due or not.
    Only(MaintenanceTask),
}
